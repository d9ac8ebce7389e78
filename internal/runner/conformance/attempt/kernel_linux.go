// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"errors"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var kernelOperations = map[string]operation{
	"unshare-user": plain(func() error { return unshare(unix.CLONE_NEWUSER) }),
	"clone-user":   plain(cloneUser),
	"clone3":       plain(func() error { return raw(unix.SYS_CLONE3, 0, 0) }),
	"setns":        plain(func() error { return unix.Setns(0, 0) }),
	"mount":        plain(func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }),
	"chroot":       plain(func() error { return unix.Chroot("/") }),
	"open-tree":    plain(func() error { return closing(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)) }),
	"io-uring": plain(func() error {
		var params [120]byte
		return raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])))
	}),
	"bpf":         plain(func() error { return raw(unix.SYS_BPF, 0, 0, 0) }),
	"userfaultfd": plain(func() error { return raw(unix.SYS_USERFAULTFD, 1) }),
	"keyctl":      plain(func() error { return raw(unix.SYS_KEYCTL, 0, 0, 0) }),
	"perf":        plain(func() error { return raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }),
	"shared-memory": plain(func() error {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
		if err == nil {
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		return err
	}),
	// On /dev/null a terminal's request that is let through answers ENOTTY.
	"type-into-terminal":           plain(func() error { return raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, 0) }),
	"type-into-terminal-high-bits": plain(func() error { return raw(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, 0) }),
	"line-discipline": plain(func() error {
		var tty int32 // N_TTY, which it has
		return raw(unix.SYS_IOCTL, 0, unix.TIOCSETD, uintptr(unsafe.Pointer(&tty)))
	}),
	"line-discipline-high-bits": plain(func() error {
		var tty int32
		return raw(unix.SYS_IOCTL, 0, unix.TIOCSETD|1<<32, uintptr(unsafe.Pointer(&tty)))
	}),
	"paste-into-terminal": plain(func() error { return raw(unix.SYS_IOCTL, 0, 0x541c, 0) }),
	"foreign-abi":         plain(foreignABI),
	"x32-abi":             plain(func() error { return raw(0x40000000|unix.SYS_GETPID, 0) }),
}

// unshare needs a process with one thread; a refusal comes before that is looked at.
func unshare(flags int) error {
	err := unix.Unshare(flags)
	if errors.Is(err, unix.EINVAL) {
		return nil // the kernel would have, in a program with one thread
	}
	return err
}

// cloneUser starts a program in a user namespace of its own.
func cloneUser() error {
	cmd := exec.Command("/proc/self/exe", "attempt", "nice-self")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	return cmd.Run()
}
