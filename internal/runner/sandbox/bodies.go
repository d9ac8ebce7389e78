// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func arg(i uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArgs + 8*i, Size: 4} }

func allow() bpf.Instruction { return bpf.RetConstant{Val: retAllow} }

func failWith(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)} //nolint:gosec // an errno
}

func deny(errno unix.Errno) []bpf.Instruction { return []bpf.Instruction{failWith(errno)} }

// onlyIf allows the call if the argument has the value.
func onlyIf(i, value uint32, errno unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{
		arg(i),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipFalse: 1},
		allow(),
		failWith(errno),
	}
}

// noneOf allows the call if the argument has none of the bits.
func noneOf(i, bits uint32, errno unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{
		arg(i),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1},
		allow(),
		failWith(errno),
	}
}

// ownPriority allows (which, who) with who 0, unless it means the whole user: the
// supervisor has the same one.
func ownPriority(user uint32) []bpf.Instruction {
	return []bpf.Instruction{
		arg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: user, SkipTrue: 3},
		arg(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 1},
		allow(),
		failWith(unix.EPERM),
	}
}

// sockets allows local sockets, and with an open network TCP and UDP. Landlock's rules for
// ports would be passed by UDP and by MPTCP; a list of what exists to be refused would
// grow with the kernel.
func sockets(local, internet bool) []bpf.Instruction {
	body := []bpf.Instruction{arg(0)}
	if local {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 1}, allow())
	}
	if !internet {
		return append(body, failWith(unix.EPERM))
	}
	return append(body,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipFalse: 8},
		arg(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // the type without SOCK_CLOEXEC and SOCK_NONBLOCK
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_DGRAM, SkipFalse: 4},
		arg(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3}, // what the type means by itself
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
		failWith(unix.EPERM),
		allow())
}

// connectedPairsOnly allows pairs that cannot be turned to a third party: a datagram
// socket of a pair can still send to, or connect to, any path.
func connectedPairsOnly() []bpf.Instruction {
	return []bpf.Instruction{
		arg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 5},
		arg(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // the type without SOCK_CLOEXEC and SOCK_NONBLOCK
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipFalse: 1},
		allow(),
		failWith(unix.EPERM),
	}
}

// terminalIoctl refuses what types into a terminal on behalf of somebody else, and
// what gives it another line discipline: drivers that no command needs.
func terminalIoctl() []bpf.Instruction {
	return []bpf.Instruction{
		arg(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocLinux, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSETD, SkipTrue: 1},
		allow(),
		failWith(unix.EPERM),
	}
}

const tiocLinux = 0x541c // TIOCLINUX

// harmlessIoctl only look, or are about terminals alone. Everything else that a file
// system takes may change it, and the list of what does grows with every kernel: so it
// is the other way round.
var harmlessIoctl = []uint32{
	0x80086601, // FS_IOC_GETFLAGS
	0x801c581f, // FS_IOC_FSGETXATTR
	0x80087601, // FS_IOC_GETVERSION
	0xc020660b, // FS_IOC_FIEMAP
	0x00000002, // FIGETBSZ
	0x802c542a, // TCGETS2
	0x402c542b, // TCSETS2
	0x402c542c, // TCSETSW2
	0x402c542d, // TCSETSF2
}

// readOnlyIoctl allows those of terminals and sockets (numbers 0x54xx and 0x89xx
// without direction bits) and the harmless ones.
func readOnlyIoctl() []bpf.Instruction {
	body := []bpf.Instruction{
		arg(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocLinux, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSETD, SkipFalse: 1},
		failWith(unix.EPERM),
	}
	for _, n := range harmlessIoctl {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipFalse: 1}, allow())
	}
	return append(body,
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xffffff00},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x5400, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x8900, SkipFalse: 1},
		allow(),
		failWith(unix.EROFS))
}
