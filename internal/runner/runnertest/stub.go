// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// startWithout starts a command for which, and for whose children, the kernel answers a range of
// calls with an error, as one that lacks them does.
func startWithout(cmd *exec.Cmd, first, last uint32, answer syscall.Errno) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and end with it: the filter belongs to the thread, whose child inherits it
		err := refuse(first, last, answer)
		if err == nil {
			err = cmd.Start()
		}
		done <- err
	}()
	return <-done
}

func refuse(first, last uint32, answer syscall.Errno) error {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: first, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: last, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(answer)}, //nolint:gosec // an errno
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // five instructions
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("refusing system calls: %w", errno)
	}
	return nil
}
