// SPDX-License-Identifier: Apache-2.0

package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
)

// Init is the first stage: it watches over one call and ends all of it. The caller
// must have locked its goroutine to its thread, which is the only one in the domain.
func Init() int {
	end, err := watch()
	if err != nil {
		end = End{Failed: err.Error()}
	}
	b, jsonErr := json.Marshal(end)
	_, writeErr := os.NewFile(fdEnd, "end").Write(b)
	if errors.Join(err, jsonErr, writeErr) != nil {
		return FailedStatus
	}
	return 0
}

func watch() (End, error) {
	if err := errors.Join(sandbox.ForbidPrivileges(), sandbox.Hide()); err != nil {
		return End{}, err
	}
	// Whoever becomes a child of this process must not inherit its own pipes.
	unix.CloseOnExec(fdControl)
	unix.CloseOnExec(fdEnd)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return End{}, fmt.Errorf("becoming subreaper: %w", err)
	}
	if err := sandbox.EnterScope(); err != nil {
		return End{}, err
	}
	if err := inDomain(); err != nil {
		return End{}, err
	}
	pid, err := syscall.ForkExec(self, []string{"toolbox", "exec"}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{0, 1, 2, fdOrder, fdReport},
	})
	if err != nil {
		return End{}, fmt.Errorf("starting the exec stage: %w", err)
	}
	for _, fd := range []int{1, 2, fdOrder, fdReport} {
		_ = unix.Close(fd) // whose end shall be seen when the command's copies are gone
	}
	r := &reaping{main: pid, mainExited: make(chan struct{}), empty: make(chan struct{})}
	go r.run()
	select {
	case <-r.mainExited:
	case <-ordered():
	}
	if err := r.sweep(); err != nil {
		return End{}, err
	}
	return r.end(), nil
}

// inDomain is the guard of kill(-1), which outside of a signal domain would reach
// every process of the user: it is called on the thread that is about to kill.
func inDomain() error {
	if err := unix.Kill(unix.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the signal domain does not hold: signalling the parent gave %v", err)
	}
	return nil
}

func ordered() <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		var b [1]byte
		_, _ = os.NewFile(fdControl, "control").Read(b[:]) // a byte, or the end of whoever holds the other end
	}()
	return c
}

// reaping collects every process that becomes a child of init. When there is none
// left, nothing of the call lives: orphans are handed to init before they can be missed.
type reaping struct {
	main       int
	mainExited chan struct{}
	empty      chan struct{}
	sweeping   atomic.Bool
	status     unix.WaitStatus // of main, once mainExited is closed
	killed     int             // by the sweep, once empty is closed
}

func (r *reaping) run() {
	defer close(r.empty)
	for {
		var ws unix.WaitStatus
		// WALL: also children that announce their end by another signal, or by none.
		pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // ECHILD
		case !ws.Exited() && !ws.Signaled():
			// A command can make init its tracer; such stops are no ends.
		case pid == r.main:
			r.status = ws
			close(r.mainExited)
		case r.sweeping.Load() && ws.Signaled() && ws.Signal() == unix.SIGKILL:
			r.killed++
		}
	}
}

// sweep kills the domain until nobody is left. kill answers success also where it was
// refused: the truth is in what there is to wait for.
func (r *reaping) sweep() error {
	r.sweeping.Store(true)
	for {
		if err := inDomain(); err != nil {
			return err
		}
		_ = unix.Kill(-1, unix.SIGKILL)
		select {
		case <-r.empty:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *reaping) end() End {
	e := End{Processes: r.killed}
	if r.status.Signaled() {
		e.Signal = unix.SignalName(r.status.Signal())
		if e.Signal == "" {
			e.Signal = fmt.Sprintf("signal %d", int(r.status.Signal()))
		}
		return e
	}
	e.Status = r.status.ExitStatus()
	return e
}
