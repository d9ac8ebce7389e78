// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
)

// verdict is what a child reports of a step that did not come out as it must.
type verdict struct {
	step  int32
	errno int32 // 0: it succeeded
}

const verdictSize = int(unsafe.Sizeof(verdict{}))

// child is a forked child on its way to exec.
type child struct {
	pid    int
	report int // closed by exec, or brings a verdict
	plan   []sandbox.Step
}

// fork starts a child that performs the plan, whose last step is exec.
func fork(plan []sandbox.Step) (*child, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	v, none, every := new(verdict), new(uint64), new(uint64)
	*every = ^uint64(0)
	syscall.ForkLock.Lock()
	// With every signal blocked no handler of the runtime runs in the child.
	sigmask(every, none)
	pid, errno := forkAndPerform(plan, v, uintptr(pipe[1]), none)
	sigmask(none, every)
	syscall.ForkLock.Unlock()
	_ = unix.Close(pipe[1])
	if errno != 0 {
		_ = unix.Close(pipe[0])
		return nil, fmt.Errorf("starting a process: %w", errno)
	}
	return &child{int(pid), pipe[0], plan}, nil
}

// forkAndPerform returns in the parent alone. In the child there are no other threads,
// locks may be held for ever, and the stack cannot grow: nothing below may allocate,
// or call what may.
//
//go:noinline
//go:norace
//go:nosplit
func forkAndPerform(plan []sandbox.Step, v *verdict, report uintptr, mask *uint64) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
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
		v.step, v.errno = int32(i), int32(errno)
		break
	}
	syscall.RawSyscall6(syscall.SYS_WRITE, report, uintptr(unsafe.Pointer(v)), unsafe.Sizeof(*v), 0, 0, 0)
	for {
		syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, FailedStatus, 0, 0, 0, 0, 0)
	}
}

const sigSetmask = 2 // SIG_SETMASK

func sigmask(set, old *uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// errUnfit marks a call that could not be started because of what it asks for.
var errUnfit = errors.New("the call cannot be started")

// started reads what the child says, once it has said something: nothing means that it runs.
func (c *child) started() error {
	defer unix.Close(c.report)
	var b [verdictSize]byte
	n, err := readFull(c.report, b[:])
	if n == 0 && err == nil {
		return nil
	}
	if n < len(b) {
		return fmt.Errorf("the child did not say what went wrong (%d bytes, %v)", n, err)
	}
	v := *(*verdict)(unsafe.Pointer(&b))
	s := c.plan[v.step]
	switch errno := unix.Errno(v.errno); {
	case s.Want[0] == 0 && s.Number == unix.SYS_CHDIR:
		return fmt.Errorf("%w: %s: %w", errUnfit, s.What, errno)
	case s.Want[0] == 0:
		return fmt.Errorf("%s: %w", s.What, errno)
	case errno == 0:
		return fmt.Errorf("the sandbox does not hold: %s succeeded", s.What)
	default:
		return fmt.Errorf("the sandbox does not hold: %s gave %q", s.What, errno.Error())
	}
}

// readFull reads until the end or until b is full.
func readFull(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := unix.Read(fd, b[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}
