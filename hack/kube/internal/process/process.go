// SPDX-License-Identifier: Apache-2.0

// Package process starts programs that outlive their starter, and tells later
// whether the process with that number is still the one that was started. It
// never signals a process that it did not start.
package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Identity is a process beyond its number: numbers are used again, but not with
// the same start time in the same boot.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // field 22 of /proc/PID/stat: clock ticks since boot, proc(5)
	Boot  string `json:"boot"`  // /proc/sys/kernel/random/boot_id
}

// Spec is a program to start.
type Spec struct {
	Path    string
	Args    []string // without the name
	Env     []string
	Dir     string
	LogFile string // appended to; the log of the run before is kept as LogFile.1
	PIDFile string
}

// Start runs a program in a session of its own and records its identity.
func Start(s Spec) (Identity, error) {
	log, err := openLog(s.LogFile)
	if err != nil {
		return Identity{}, err
	}
	defer log.Close()
	cmd := &exec.Cmd{
		Path: s.Path, Args: append([]string{filepath.Base(s.Path)}, s.Args...),
		Env: s.Env, Dir: s.Dir, Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := keepToOurselves(); err != nil {
		return Identity{}, err
	}
	if err := cmd.Start(); err != nil {
		return Identity{}, fmt.Errorf("starting %s: %w", filepath.Base(s.Path), err)
	}
	id, err := identify(cmd.Process.Pid)
	if err == nil {
		err = id.save(s.PIDFile)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return Identity{}, err
	}
	go func() { _ = cmd.Wait() }() // reaps it while we are its parent
	return id, nil
}

// keepToOurselves has no descriptor of whoever started this program end up in one that
// outlives both: a lock held through it would never be let go, a pipe never end.
func keepToOurselves() error {
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil { // Linux 5.11
		return fmt.Errorf("keeping descriptors to ourselves: %w", err)
	}
	return nil
}

func openLog(path string) (*os.File, error) {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return f, nil
}

func identify(pid int) (Identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, err
	}
	start, _, err := parseStat(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return Identity{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// parseStat finds start time and state. The name in field 2 may hold spaces and
// parentheses, so the fields are counted from its last parenthesis.
func parseStat(stat string) (start uint64, state byte, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, errors.New("no process name")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 20 {
		return 0, 0, errors.New("too few fields")
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

// Alive reports whether that very process still runs. A zombie does not.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	now, err := identify(id.PID)
	if err != nil || now != id {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
	if err != nil {
		return false
	}
	_, state, err := parseStat(string(stat))
	return err == nil && state != 'Z' && state != 'X'
}

// Stop ends the process: politely, and by force when it has not ended after
// grace. The handle is taken before the check, so that the signal cannot reach a
// process that got the number in between.
func (id Identity) Stop(grace time.Duration) error {
	handle, err := os.FindProcess(id.PID) // a pidfd where the kernel has them
	if err != nil || !id.Alive() {
		return nil
	}
	defer handle.Release()
	if err := handle.Signal(syscall.SIGTERM); err != nil {
		return ignoreGone(err)
	}
	if id.waitGone(grace) {
		return nil
	}
	if err := handle.Signal(syscall.SIGKILL); err != nil {
		return ignoreGone(err)
	}
	if !id.waitGone(grace) {
		return fmt.Errorf("process %d does not end, not even after SIGKILL", id.PID)
	}
	return nil
}

func (id Identity) waitGone(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !id.Alive() {
			return true
		}
	}
	return !id.Alive()
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

func (id Identity) save(path string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("writing the PID file: %w", err)
	}
	return os.Rename(path+".new", path)
}

// Read gives the identity in a PID file; the zero identity, which is not alive,
// when the file is absent or holds nothing sensible.
func Read(path string) Identity {
	var id Identity
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return Identity{}
	}
	return id
}
