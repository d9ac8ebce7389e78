// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var fileOperations = map[string]operation{
	"read": on(func(p string) error {
		fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		var b [1]byte
		_, err = unix.Read(fd, b[:])
		return err
	}),
	"create":    on(func(p string) error { return closing(unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)) }),
	"append":    on(func(p string) error { return writeTo(p, unix.O_WRONLY|unix.O_APPEND) }),
	"overwrite": on(func(p string) error { return writeTo(p, unix.O_WRONLY|unix.O_TRUNC) }),
	"open-truncating": on(func(p string) error {
		return closing(unix.Open(p, unix.O_RDONLY|unix.O_TRUNC, 0))
	}),
	"truncate": on(func(p string) error { return unix.Truncate(p, 1) }),
	"reopen": onReadOnly(func(fd int) error {
		return writeTo(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_APPEND)
	}),
	"unlink":  on(unix.Unlink),
	"rmdir":   on(unix.Rmdir),
	"mkdir":   on(func(p string) error { return unix.Mkdir(p, 0o700) }),
	"mkfifo":  on(func(p string) error { return unix.Mkfifo(p, 0o600) }),
	"tmpfile": on(func(p string) error { return closing(unix.Open(p, unix.O_WRONLY|unix.O_TMPFILE, 0o600)) }),
	"rename":  onTwo(unix.Rename),
	"exchange": onTwo(func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	}),
	"link":    onTwo(unix.Link),
	"symlink": onTwo(unix.Symlink),
	"bind": on(func(p string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: p})
	}),
}

func writeTo(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("attempted\n"))
	return err
}
