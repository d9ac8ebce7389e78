// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func start(t *testing.T, script string) (Identity, Spec) {
	t.Helper()
	dir := t.TempDir()
	spec := Spec{
		Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Dir: dir,
		LogFile: filepath.Join(dir, "log"), PIDFile: filepath.Join(dir, "pid"),
	}
	id, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = id.Stop(time.Second) })
	return id, spec
}

// A started process is found again through its file, leads a session of its own,
// and is stopped, also when it does not listen to SIGTERM.
func TestStartStop(t *testing.T) {
	for name, script := range map[string]string{
		"a polite one":     "exec sleep 1000",
		"one that is deaf": "trap '' TERM; echo deaf; while :; do sleep 0.05; done",
	} {
		t.Run(name, func(t *testing.T) {
			id, spec := start(t, script)
			if got := Read(spec.PIDFile); got != id || !got.Alive() {
				t.Fatalf("Read() = %+v, alive %t; want %+v, alive", got, got.Alive(), id)
			}
			if session, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(id.PID), 0, 0); int(session) != id.PID {
				t.Errorf("session %d, want its own, %d", session, id.PID)
			}
			if err := id.Stop(300 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if id.Alive() {
				t.Error("alive after Stop")
			}
		})
	}
}

// A started process holds nothing of its starter's: a lock that was handed down ends with
// whoever took it.
func TestNothingIsHandedDown(t *testing.T) {
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := unix.FcntlInt(lock.Fd(), unix.F_SETFD, 0); err != nil { // as flock(1) leaves it to its command
		t.Fatal(err)
	}
	id, _ := start(t, "exec sleep 1000")
	open, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(id.PID), "fd", "*"))
	if err != nil || len(open) == 0 {
		t.Fatal(open, err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == lock.Name() {
			t.Errorf("%s is %s", fd, to)
		}
	}
}

// A number that was used again is not ours: it is neither alive nor signalled.
func TestReusedNumber(t *testing.T) {
	id, _ := start(t, "exec sleep 1000")
	for name, other := range map[string]Identity{
		"another start time": {id.PID, id.Start + 1, id.Boot},
		"another boot":       {id.PID, id.Start, "another"},
		"no process":         {},
	} {
		if other.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := other.Stop(time.Second); err != nil {
			t.Errorf("%s: Stop() = %v", name, err)
		}
	}
	if !id.Alive() {
		t.Error("the process was stopped in the place of another")
	}
}

// A zombie has ended, even if nobody has asked for its exit status.
func TestZombie(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	id, err := identify(cmd.Process.Pid)
	if err != nil || !id.Alive() {
		t.Fatalf("identify() = %+v, %v; want an alive process", id, err)
	}
	in.Close()
	if !id.waitGone(10 * time.Second) {
		t.Error("still alive as a zombie")
	}
}

// Names of processes may look like the fields that follow them.
func TestParseStat(t *testing.T) {
	fields := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"
	for _, name := range []string{"sleep", "a b", ") S 1 (", "((("} {
		start, state, err := parseStat("7 (" + name + ")" + fields)
		if err != nil || start != 4242 || state != 'S' {
			t.Errorf("%q: parseStat() = %d, %c, %v", name, start, state, err)
		}
	}
	for _, bad := range []string{"", "7 sleep S 1", "7 (sleep) S 1 2"} {
		if _, _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) succeeds", bad)
		}
	}
}

// A PID file that is absent or damaged names no process.
func TestReadDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	if Read(path).Alive() {
		t.Error("an absent file names a process")
	}
	if err := os.WriteFile(path, []byte(`{"pid":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	if Read(path) != (Identity{}) {
		t.Error("a damaged file names a process")
	}
}

// The log of a start holds what the program said, and the one before is kept.
func TestLog(t *testing.T) {
	id, spec := start(t, "echo first; echo second >&2")
	id.waitGone(10 * time.Second)
	if got := Tail(spec.LogFile, 1); got != "    second" {
		t.Errorf("Tail() = %q", got)
	}
	again, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	again.waitGone(10 * time.Second)
	if got := Tail(spec.LogFile+".1", 10); got != "    first\n    second" {
		t.Errorf("the log before = %q", got)
	}
	if got := Tail(filepath.Join(t.TempDir(), "none"), 1); !strings.Contains(got, "no log") {
		t.Errorf("Tail() of no log = %q", got)
	}
}
