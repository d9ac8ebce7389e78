// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	xattrName = "user.attempted"
	flagsGet  = 0x80086601 // FS_IOC_GETFLAGS
	flagsSet  = 0x40086602 // FS_IOC_SETFLAGS
	xflagsGet = 0x801c581f // FS_IOC_FSGETXATTR
	xflagsSet = 0x401c5820 // FS_IOC_FSSETXATTR
	noDump    = 0x40       // FS_NODUMP_FL
	xNoDump   = 0x80       // FS_XFLAG_NODUMP
)

var past = []unix.Timespec{{Sec: 1}, {Sec: 1}}

var metadataOperations = map[string]operation{
	"chmod":        on(func(p string) error { return unix.Fchmodat(unix.AT_FDCWD, p, 0o777, 0) }),
	"chmod-setuid": on(func(p string) error { return unix.Fchmodat(unix.AT_FDCWD, p, 0o4755, 0) }),
	"fchmod":       onReadOnly(func(fd int) error { return unix.Fchmod(fd, 0o777) }),
	"fchmodat2": on(func(p string) error {
		b, err := cString(p)
		if err != nil {
			return err
		}
		cwd := unix.AT_FDCWD
		return raw(unix.SYS_FCHMODAT2, uintptr(cwd), b, 0o777, 0)
	}),
	"chown":  on(func(p string) error { return unix.Fchownat(unix.AT_FDCWD, p, unix.Getuid(), unix.Getgid(), 0) }),
	"fchown": onReadOnly(func(fd int) error { return unix.Fchown(fd, unix.Getuid(), unix.Getgid()) }),
	"utime":  on(func(p string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p, past, 0) }),
	"futimens": onReadOnly(func(fd int) error {
		return raw(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&past[0])), 0)
	}),
	"setxattr": on(func(p string) error { return unix.Setxattr(p, xattrName, []byte("x"), 0) }),
	"fsetxattr": onReadOnly(func(fd int) error {
		return unix.Fsetxattr(fd, xattrName, []byte("x"), 0)
	}),
	"removexattr": on(func(p string) error { return unix.Removexattr(p, "user.original") }),
	"setxattrat": on(func(p string) error {
		path, err := cString(p)
		if err != nil {
			return err
		}
		name, err := cString(xattrName)
		if err != nil {
			return err
		}
		value := [1]byte{'x'}
		args := struct {
			value       uint64
			size, flags uint32
		}{uint64(uintptr(unsafe.Pointer(&value[0]))), 1, 0}
		cwd := unix.AT_FDCWD
		return raw(unix.SYS_SETXATTRAT, uintptr(cwd), path, 0, name, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	}),
	"setflags": onReadOnly(func(fd int) error {
		flags, err := unix.IoctlGetUint32(fd, flagsGet)
		if err != nil {
			return fmt.Errorf("%w: reading flags: %w", errBroken, err)
		}
		long := uint64(flags | noDump)
		return raw(unix.SYS_IOCTL, uintptr(fd), flagsSet, uintptr(unsafe.Pointer(&long)))
	}),
	"fssetxattr": onReadOnly(func(fd int) error {
		var attr [28]byte
		if err := raw(unix.SYS_IOCTL, uintptr(fd), xflagsGet, uintptr(unsafe.Pointer(&attr[0]))); err != nil {
			return fmt.Errorf("%w: reading extended flags: %w", errBroken, err)
		}
		attr[0] |= xNoDump
		return raw(unix.SYS_IOCTL, uintptr(fd), xflagsSet, uintptr(unsafe.Pointer(&attr[0])))
	}),
	"file_setattr": on(func(p string) error {
		path, err := cString(p)
		if err != nil {
			return err
		}
		attr := [6]uint32{xNoDump}
		cwd := unix.AT_FDCWD
		return raw(unix.SYS_FILE_SETATTR, uintptr(cwd), path, uintptr(unsafe.Pointer(&attr[0])), 24, 0)
	}),
}

// keep holds what only a raw system call refers to.
var keep [][]byte

func cString(s string) (uintptr, error) {
	b, err := unix.ByteSliceFromString(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBroken, err)
	}
	keep = append(keep, b)
	return uintptr(unsafe.Pointer(&b[0])), nil
}
