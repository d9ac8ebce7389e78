// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Container is a running supervisor.
type Container struct {
	cmd    *exec.Cmd
	done   chan struct{}
	err    error
	mu     sync.Mutex
	stderr bytes.Buffer
}

// Write collects what the container says.
func (c *Container) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(b)
}

// Log returns what the container has said.
func (c *Container) Log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// Kill ends the container at once.
func (c *Container) Kill() {
	// Its first process: dropping privileges has cut the tie by which it would die with unshare.
	if pid, err := c.pid(); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	} else {
		_ = c.cmd.Process.Kill()
	}
	<-c.done
}

// Terminate sends SIGTERM to the supervisor and waits for the end of the container.
func (c *Container) Terminate() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	return c.Wait()
}

// Wait waits for the end of the container and returns how the supervisor ended.
func (c *Container) Wait() error {
	<-c.done
	return c.err
}

// pid is the supervisor's process, as the host sees it.
func (c *Container) pid() (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.cmd.Process.Pid, c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// Memory is the supervisor's resident memory in KiB.
func (c *Container) Memory() (int64, error) {
	pid, err := c.pid()
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nVmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("the process has no resident memory")
	}
	return strconv.ParseInt(fields[0], 10, 64)
}

// Processes counts the processes in the container, the supervisor included.
func (c *Container) Processes() (int, error) {
	pids, err := c.Pids()
	return len(pids), err
}

// Waiting counts the processes in the container that wait for a call and watch over none.
func (c *Container) Waiting() (n int, err error) {
	supervisor, err := c.pid()
	if err != nil {
		return 0, err
	}
	pids, err := c.Pids()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended meanwhile
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if string(command) == "toolbox\x00init\x00" && len(children) == 0 &&
			strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", supervisor)) {
			n++
		}
	}
	return n, nil
}

// Pids lists the processes in the container, as the host sees them.
func (c *Container) Pids() ([]int, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range all {
		if ns, err := os.Readlink(path); err == nil && ns == own {
			n, err := strconv.Atoi(strings.Split(path, "/")[2])
			if err != nil {
				return nil, err
			}
			pids = append(pids, n)
		}
	}
	return pids, nil
}

// Freeze stops the supervisor alone, as if it hung; nothing but its end wakes it. It returns
// when every thread stands still: until then one could still take a frame and act on it.
func (c *Container) Freeze() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if stopped(pid) {
			return nil
		}
	}
	return fmt.Errorf("the supervisor (PID %d) was not stopped within 10 s", pid)
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, f := range files {
		status, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(status, []byte("\nState:\tT")) {
			return false
		}
	}
	return true
}
