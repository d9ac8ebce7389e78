// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there (%v)", path, err)
	}
}

// wantEmpty demands that nothing but the supervisor lives in a container now.
func wantEmpty(t *testing.T, c *runnertest.Container) {
	t.Helper()
	if n, err := c.Processes(); err != nil || n != 1 {
		t.Errorf("%d processes are in the container (%v), want the supervisor alone", n, err)
	}
}

// wantNoCall demands that nothing lives in a container but the supervisor and what waits for calls.
func wantNoCall(t *testing.T, c *runnertest.Container) {
	t.Helper()
	n, err := c.Processes()
	waiting, waitErr := c.Waiting()
	if err := errors.Join(err, waitErr); err != nil || n != 1+waiting {
		t.Errorf("%d processes are in the container (%v), of them %d wait: want the supervisor beside those", n, err, waiting)
	}
}

func start(t *testing.T, l *runnertest.Link, p policy.Profile, command string) string {
	t.Helper()
	st, err := l.Order(p, wire.Workspace, "bash", fmt.Sprintf(`{"command":%q}`, command))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	return st.Call
}

func wait(t *testing.T, l *runnertest.Link, id string) runnertest.Result {
	t.Helper()
	r, err := l.Wait(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitFile waits until a file has content: the command that writes it has come so far.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s was never written", path)
}

// eventually is for what the supervisor does on its own and does not announce.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never came true: %s", what)
}

// hydra leaves processes behind in every way there is to escape a parent.
const hydra = `trap '' TERM HUP INT
(setsid sh -c 'trap "" TERM; while :; do echo x >> daemon; sleep 0.02; done' </dev/null >/dev/null 2>&1 &)
(setsid setsid sleep 1000 & ) & sh -c '(sleep 1000 &) &'
while [ ! -s daemon ]; do sleep 0.01; done
`

func TestNothingOutlivesACall(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		stop    bool
		args    string
		want    wire.Cause
	}{
		"when the command ends":   {command: hydra + "exit 4", want: wire.Finished},
		"when it is stopped":      {command: hydra + "sleep 1000", stop: true, want: wire.Cancelled},
		"when its time is over":   {command: hydra + "sleep 1000", args: `,"timeout_seconds":1`, want: wire.TimedOut},
		"when it traces its init": {command: hydra + `python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(0,0,0,0)' ; exit 4`, want: wire.Finished},
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
			st, err := l.Order(danger, wire.Workspace, "bash", fmt.Sprintf(`{"command":%q%s}`, tc.command, tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(st); err != nil {
				t.Fatal(err)
			}
			awaitFile(t, p.Path("workspace/daemon"))
			if tc.stop {
				if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: st.Call}}); err != nil {
					t.Fatal(err)
				}
			}
			r := wait(t, l, st.Call)
			size := sizeOf(t, p.Path("workspace/daemon"))
			wantNoCall(t, c)
			if r.Cause != tc.want || r.Processes == 0 || tc.want == wire.Finished && r.Status != 4 {
				t.Errorf("exited = %+v", r.Exited)
			}
			if again := sizeOf(t, p.Path("workspace/daemon")); again != size {
				t.Errorf("the daemon wrote after the end of its call: %d bytes, then %d", size, again)
			}
		})
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// One call's end is not another's: the kill reaches its own domain only.
func TestCallsEndAlone(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	long := start(t, l, danger, "echo up > long; sleep 2; echo survived")
	awaitFile(t, p.Path("workspace/long"))
	for range 5 {
		call(t, l, workspace, "bash", fmt.Sprintf(`{"command":%q}`, hydra))
		if err := os.Remove(p.Path("workspace/daemon")); err != nil {
			t.Fatal(err)
		}
	}
	if r := wait(t, l, long); r.Status != 0 || r.Output != "survived\n" {
		t.Errorf("the other call: %+v", r)
	}
}

// Two calls of one user, in the widest mode, are nothing to each other.
func TestCallsCannotReachEachOther(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, `exec python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("\0other-call"); s.listen()
open("victim", "w").write(str(os.getpid()))
s.accept()'`)
	awaitFile(t, p.Path("workspace/victim"))
	r := call(t, l, danger, "bash", fmt.Sprintf(`{"command":%q}`, `pid=$(cat victim)
kill -9 $pid && echo killed
/toolbox/toolbox attempt ptrace $pid
/toolbox/toolbox attempt memory $pid
/toolbox/toolbox attempt environ $pid
/toolbox/toolbox attempt prlimit $pid
python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("\0other-call")' 2>&1 | tail -1`))
	want := "denied EPERM\ndenied EACCES\ndenied EACCES\ndenied EPERM\nPermissionError: [Errno 1] Operation not permitted\n"
	if _, got, _ := strings.Cut(r.Output, "Operation not permitted\n"); got != want {
		t.Errorf("the other call could be reached: %q, want %q", r.Output, want)
	}
}

func TestAFloodOfOutputEndsTheCall(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	st, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"head -c 1G /dev/zero"}`)
	if err != nil {
		t.Fatal(err)
	}
	st.Limits.OutputBytes = 1 << 20
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, l, st.Call); r.Cause != wire.OutputLimit || r.OutputBytes != 1<<20 || len(r.Output) != 1<<20 {
		t.Errorf("exited = %+v with %d bytes", r.Exited, len(r.Output))
	}
	wantEmpty(t, c)
}

func TestStartsThatAreRefused(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	for name, tc := range map[string]struct {
		change func(*wire.Start)
		denial wire.Denial
	}{
		"an earlier epoch":            {func(s *wire.Start) { s.Epoch.Boot-- }, wire.DeniedProfile},
		"a later epoch":               {func(s *wire.Start) { s.Epoch.Counter++ }, wire.DeniedProfile},
		"a profile beyond the bound":  {func(s *wire.Start) { s.Profile = danger }, wire.DeniedProfile},
		"a profile of the other one":  {func(s *wire.Start) { s.Profile = readOnly }, wire.DeniedProfile},
		"an open network":             {func(s *wire.Start) { s.Profile.Network = policy.NetworkOpen }, wire.DeniedProfile},
		"arguments of another digest": {func(s *wire.Start) { s.Arguments = `{"command":"touch other"}` }, ""},
		"another workspace":           {func(s *wire.Start) { s.Workspace = "/extra" }, ""},
		"an unknown tool":             {func(s *wire.Start) { s.Tool = "delete" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"touch ran"}`)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(st)
			if err := l.Start(st); err != nil {
				t.Fatal(err)
			}
			if r := wait(t, l, st.Call); r.Cause != wire.Refused || r.Denial != tc.denial || r.Detail == "" {
				t.Errorf("exited = %+v", r.Exited)
			}
			wantAbsent(t, p.Path("workspace/ran"))
		})
	}
}

// What watches over a call can be lost, to the out-of-memory killer for one. Then
// nobody knows what is left of the call, and everything in the container goes.
func TestWhenTheWatcherIsLost(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	other := start(t, l, danger, "sleep 1000")
	id := start(t, l, danger, hydra+"sleep 1000")
	awaitFile(t, p.Path("workspace/daemon"))
	pids, err := c.Pids()
	if err != nil {
		t.Fatal(err)
	}
	watcher := 0 // the later one
	for _, pid := range pids {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(b) == "toolbox\x00init\x00" {
			watcher = max(watcher, pid)
		}
	}
	if err := syscall.Kill(watcher, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, other} {
		if r := wait(t, l, id); r.Cause != wire.Finished || r.Signal != "SIGKILL" || r.Detail == "" {
			t.Errorf("exited = %+v", r.Exited)
		}
	}
	wantEmpty(t, c)
	if r := call(t, l, workspace, "bash", `{"command":"echo on"}`); r.Output != "on\n" {
		t.Errorf("after that: %+v", r)
	}
}

// A command starts where it asks to, and what it may do does not follow from that.
func TestTheWorkingDirectoryIsTheCalls(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	for name, tc := range map[string]struct{ args, output, detail string }{
		"the workspace":              {`{"command":"pwd"}`, "/workspace\n", ""},
		"below it":                   {`{"command":"mkdir -p sub; cd sub; pwd"}`, "/workspace/sub\n", ""},
		"relative":                   {`{"command":"pwd","cwd":"."}`, "/workspace\n", ""},
		"absolute, outside":          {`{"command":"pwd; touch /extra/new || echo kept","cwd":"/extra"}`, "/extra\ntouch: cannot touch '/extra/new': Permission denied\nkept\n", ""},
		"a directory that is absent": {`{"command":"touch ran","cwd":"nope"}`, "", "entering /workspace/nope: no such file or directory"},
		"what is no directory":       {`{"command":"touch ran","cwd":"/etc/passwd"}`, "", "entering /etc/passwd: not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, l, workspace, "bash", tc.args)
			if r.Output != tc.output || !strings.Contains(r.Detail, tc.detail) || (tc.detail != "") != (r.Cause == wire.Refused) {
				t.Errorf("bash: %+v", r)
			}
			wantAbsent(t, p.Path("workspace/ran"))
		})
	}
}
