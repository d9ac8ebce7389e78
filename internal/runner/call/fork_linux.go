// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
)

// child is a process that has become the call.
type child struct {
	pid   int
	pidfd int
}

// failure is the step of a plan that did not come out as it must, if any.
type failure struct {
	step  int // -1: none
	errno syscall.Errno
}

// fork starts a child that performs the plan, whose last step is exec. It returns once
// the child has executed, or has failed: then nothing of the call has run.
func fork(plan []sandbox.Step) (*child, error) {
	failed := &failure{step: -1}
	pidfd, none, every := new(int32), new(uint64), new(uint64)
	*every = ^uint64(0)
	syscall.ForkLock.Lock()
	// With every signal blocked no handler of the runtime runs in the child.
	sigmask(every, none)
	pid, errno := forkAside(plan, failed, pidfd, none)
	sigmask(none, every)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(plan)
	if errno != 0 {
		return nil, fmt.Errorf("starting a process: %w", syscall.Errno(errno))
	}
	c := &child{int(pid), int(*pidfd)}
	if failed.step >= 0 {
		return nil, errors.Join(failed.explain(plan), c.bury())
	}
	return c, nil
}

// forkAside forks as in a system call that may block: the runtime need not look after a
// thread that stands still.
//
//go:noinline
//go:norace
//go:nosplit
func forkAside(plan []sandbox.Step, failed *failure, pidfd *int32, mask *uint64) (pid, errno uintptr) {
	entersyscall()
	pid, errno = forkAndPerform(plan, failed, pidfd, mask)
	exitsyscall()
	return pid, errno
}

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// forkAndPerform returns in the parent alone, and only when the child has left the
// memory that both share. In the child there are no other threads, locks may be held
// for ever, and the stack cannot grow: nothing below may allocate, or call what may.
//
//go:noinline
//go:norace
//go:nosplit
func forkAndPerform(plan []sandbox.Step, failed *failure, pidfd *int32, mask *uint64) (pid, errno uintptr) {
	pid, errno = vfork(syscall.CLONE_VFORK|syscall.CLONE_VM|unix.CLONE_PIDFD|uintptr(syscall.SIGCHLD), pidfd)
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	for i := range plan {
		s := &plan[i]
		if s.Number == syscall.SYS_EXECVE { // exec resets handlers, not what is blocked
			syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(mask)), 0, 8, 0, 0)
		}
		_, _, errno := syscall.RawSyscall6(s.Number, s.Args[0], s.Args[1], s.Args[2], s.Args[3], s.Args[4], s.Args[5])
		if s.Any || errno == s.Want[0] || errno != 0 && errno == s.Want[1] {
			continue
		}
		if u := s.Undo; errno == 0 && u != nil {
			syscall.RawSyscall6(u.Number, u.Args[0], u.Args[1], u.Args[2], u.Args[3], u.Args[4], u.Args[5])
		}
		failed.step, failed.errno = i, errno
		break
	}
	for {
		syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, FailedStatus, 0, 0, 0, 0, 0)
	}
}

// vfork clones this process with the stack and memory that it has. It returns twice,
// first in the child: the parent stands still until the child executes or exits.
func vfork(flags uintptr, pidfd *int32) (pid, errno uintptr)

const sigSetmask = 2 // SIG_SETMASK

func sigmask(set, old *uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// ErrUnfit marks a call that cannot be started because of what it asks for.
var ErrUnfit = errors.New("the call cannot be started")

// errWithdrawn means that the call was to be ended before it ran.
var errWithdrawn = errors.New("the call was withdrawn")

// explain says what went wrong.
func (f *failure) explain(plan []sandbox.Step) error {
	switch s := plan[f.step]; {
	case s.Number == unix.SYS_RECVFROM:
		return errWithdrawn
	case s.Number == unix.SYS_CHDIR:
		return fmt.Errorf("%w: %s: %w", ErrUnfit, s.What, f.errno)
	case s.Want[0] == 0:
		return fmt.Errorf("%s: %w", s.What, f.errno)
	case f.errno == 0:
		return fmt.Errorf("the sandbox does not hold: %s succeeded", s.What)
	default:
		return fmt.Errorf("the sandbox does not hold: %s gave %q", s.What, f.errno.Error())
	}
}

// bury collects a child that has failed.
func (c *child) bury() error {
	_ = unix.Close(c.pidfd)
	for {
		if _, err := unix.Wait4(c.pid, nil, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
