// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const protoMPTCP = 262

var socketOperations = map[string]operation{
	"inet-stream":  socket(unix.AF_INET, unix.SOCK_STREAM, 0),
	"inet-dgram":   socket(unix.AF_INET, unix.SOCK_DGRAM, 0),
	"inet-raw":     socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"inet-mptcp":   socket(unix.AF_INET, unix.SOCK_STREAM, protoMPTCP),
	"inet6-stream": socket(unix.AF_INET6, unix.SOCK_STREAM, 0),
	"inet6-dgram":  socket(unix.AF_INET6, unix.SOCK_DGRAM, 0),
	"netlink":      socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
	"packet":       socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"vsock":        socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"alg":          socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"unix-stream":  socket(unix.AF_UNIX, unix.SOCK_STREAM, 0),
	"unix-dgram":   socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0),
	"inet-high-bits": plain(func() error {
		return raw(unix.SYS_SOCKET, unix.AF_INET|1<<32, unix.SOCK_STREAM, 0)
	}),
	"pair-stream": pair(unix.SOCK_STREAM),
	"pair-dgram":  pair(unix.SOCK_DGRAM), // could be turned to any path by connect or sendto
	"connect": on(func(p string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: p})
	}),
}

func socket(domain, kind, protocol int) operation {
	return plain(func() error { return closing(unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)) })
}

func pair(kind int) operation {
	return plain(func() error {
		fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fds[0], []byte("x")); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		return nil
	})
}
