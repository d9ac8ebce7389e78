// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
)

// plan is everything that the child does: its place, its confinement, a last look whether
// the call is still wanted, exec.
func (p program) plan(stdin, output, orders int, confined []sandbox.Step) ([]sandbox.Step, error) {
	exec, err := p.exec()
	if err != nil {
		return nil, err
	}
	place := []sandbox.Step{
		sandbox.Call("starting a session", unix.SYS_SETSID),
		listening(),
		sandbox.OnPath("entering "+p.dir, unix.SYS_CHDIR, p.dir),
		sandbox.Call("setting standard output", unix.SYS_DUP3, uintptr(output), 1, 0),
		sandbox.Call("setting standard error", unix.SYS_DUP3, uintptr(output), 2, 0),
	}
	if p.terminal {
		place = append(place, sandbox.Call("taking the terminal", unix.SYS_IOCTL, uintptr(output), unix.TIOCSCTTY, 0),
			sandbox.Call("setting standard input", unix.SYS_DUP3, uintptr(output), 0, 0))
	}
	if stdin != 0 {
		place = append(place, sandbox.Call("setting standard input", unix.SYS_DUP3, uintptr(stdin), 0, 0))
	}
	return slices.Concat(place, confined, []sandbox.Step{wanted(orders), exec}), nil
}

// listening undoes that init ignores SIGTERM, which exec would pass on.
func listening() sandbox.Step {
	byDefault := new([4]uint64) // struct sigaction: SIG_DFL, no flags, no mask
	s := sandbox.Call("resetting SIGTERM", unix.SYS_RT_SIGACTION, uintptr(unix.SIGTERM), uintptr(unsafe.Pointer(byDefault)), 0, 8)
	s.Keep = byDefault
	return s
}

// wanted looks whether there is anything to be heard from whoever gave the order: then the
// call has been withdrawn between its order and its exec, and must not run.
func wanted(orders int) sandbox.Step {
	b := new([1]byte)
	return sandbox.Step{What: "looking for the order's end", Number: unix.SYS_RECVFROM, Keep: b, Want: [2]unix.Errno{unix.EAGAIN},
		Args: [6]uintptr{uintptr(orders), uintptr(unsafe.Pointer(b)), 1, unix.MSG_PEEK | unix.MSG_DONTWAIT}}
}

// exec is the step that becomes the program.
func (p program) exec() (sandbox.Step, error) {
	argv, err := syscall.SlicePtrFromStrings(p.argv)
	if err != nil {
		return sandbox.Step{}, fmt.Errorf("executing %s: %w", p.path, err)
	}
	env, err := syscall.SlicePtrFromStrings(p.env)
	if err != nil {
		return sandbox.Step{}, fmt.Errorf("executing %s: %w", p.path, err)
	}
	s := sandbox.OnPath("executing "+p.argv[0], unix.SYS_EXECVE, p.path,
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	s.Keep = []any{s.Keep, argv, env}
	return s, nil
}

// input opens what the program reads. It never is a socket: bash would take it for a
// remote shell's and read start-up files.
func (p program) input() (int, error) {
	if p.stdin == nil {
		return 0, nil // what init has itself: /dev/null
	}
	fd, err := unix.MemfdCreate("arguments", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("creating a file in memory: %w", err)
	}
	for b := p.stdin; len(b) > 0 && err == nil; {
		var n int
		n, err = unix.Write(fd, b)
		b = b[max(n, 0):]
	}
	if err == nil {
		_, err = unix.Seek(fd, 0, 0)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("filling a file in memory: %w", err), unix.Close(fd))
	}
	return fd, nil
}
