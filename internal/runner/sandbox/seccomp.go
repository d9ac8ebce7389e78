// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// What a filter answers, beside an error number.
const (
	retAllow uint32 = unix.SECCOMP_RET_ALLOW
	retKill  uint32 = unix.SECCOMP_RET_KILL_PROCESS
)

// Offsets in struct seccomp_data. Of an argument the low 32 bits are looked at, on
// little-endian machines: the kernel itself ignores the high ones of the arguments here.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32Bit marks system calls of the x32 ABI, which report the architecture x86-64.
const x32Bit = 0x40000000

// call is the answer to one system call. Its body ends in a return on every path.
type call struct {
	number uint32
	body   []bpf.Instruction
}

// Filter returns the program for a profile.
func Filter(p policy.Profile) ([]bpf.Instruction, error) {
	if err := Admit(p); err != nil {
		return nil, err
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: nativeArch, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
	}
	calls := table(p)
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.number, b.number) })
	for i := 1; i < len(calls); i++ {
		if calls[i].number == calls[i-1].number {
			return nil, fmt.Errorf("seccomp: system call %d is in the table twice", calls[i].number)
		}
	}
	for len(calls) > 0 {
		n := min(perGroup, len(calls))
		g, err := group(calls[:n])
		if err != nil {
			return nil, err
		}
		program, calls = append(program, g...), calls[n:]
	}
	return append(program, bpf.RetConstant{Val: retAllow}), nil
}

// perGroup is how many system calls are looked through at most once their group is found.
// Who makes one that is not in the table, as nearly all are, passes few instructions; and so
// does the kernel, which looks in advance for those that are always allowed.
const perGroup = 6

// group answers neighbours in the table, in ascending order: whatever is above them it
// leaves to the next group, whatever is between them or below it allows.
func group(calls []call) ([]bpf.Instruction, error) {
	var body []bpf.Instruction
	for _, c := range calls {
		if len(c.body) > math.MaxUint8 {
			return nil, fmt.Errorf("seccomp: the answer to system call %d has %d instructions; a jump goes over %d at most", c.number, len(c.body), math.MaxUint8)
		}
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.number, SkipFalse: uint8(len(c.body))}) //nolint:gosec // looked at above
		body = append(body, c.body...)
	}
	body = append(body, bpf.RetConstant{Val: retAllow})
	if len(body) > math.MaxUint8 {
		return nil, fmt.Errorf("seccomp: the answers up to system call %d have %d instructions; a jump goes over %d at most", calls[len(calls)-1].number, len(body), math.MaxUint8)
	}
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: calls[len(calls)-1].number, SkipTrue: uint8(len(body))}}, body...), nil //nolint:gosec // looked at above
}

// table is every system call that is not simply allowed.
func table(p policy.Profile) []call {
	m := p.Mode
	t := append(always(), call{unix.SYS_SOCKET, sockets(m != policy.ReadOnly, p.Network == policy.NetworkOpen)})
	if m == policy.ReadOnly {
		t = append(t,
			call{unix.SYS_SOCKETPAIR, connectedPairsOnly()},
			call{unix.SYS_IOCTL, readOnlyIoctl()})
		t = append(t, all(unix.EROFS, metadata...)...)
		t = append(t, all(unix.EROFS, legacyMetadata...)...)
	} else {
		t = append(t,
			call{unix.SYS_SOCKETPAIR, onlyIf(0, unix.AF_UNIX, unix.EPERM)},
			call{unix.SYS_IOCTL, terminalIoctl()})
	}
	if m != policy.DangerFullAccess {
		// Objects that are no files, shared with the other containers of the pod.
		t = append(t, all(unix.EPERM, unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN)...)
	}
	return t
}

// always is refused in every mode, danger-full-access included: what would end or
// weaken the supervisor, and what would take the sandbox apart.
func always() []call {
	t := []call{
		// The arguments of clone3 are in memory, where a filter cannot look; libraries fall back to clone.
		{unix.SYS_CLONE3, deny(unix.ENOSYS)},
		{unix.SYS_CLONE, noneOf(0, namespaceFlags, unix.EPERM)},
		{unix.SYS_PRLIMIT64, onlyIf(0, 0, unix.EPERM)},
		{unix.SYS_SCHED_SETAFFINITY, onlyIf(0, 0, unix.EPERM)},
		{unix.SYS_SCHED_SETSCHEDULER, onlyIf(0, 0, unix.EPERM)},
		{unix.SYS_SCHED_SETPARAM, onlyIf(0, 0, unix.EPERM)},
		{unix.SYS_SCHED_SETATTR, onlyIf(0, 0, unix.EPERM)},
		{unix.SYS_SETPRIORITY, ownPriority(unix.PRIO_USER)},
		{unix.SYS_IOPRIO_SET, ownPriority(ioprioWhoUser)},
	}
	return append(t, all(unix.EPERM, dismantling...)...)
}

// namespaceFlags are the CLONE_NEW* flags that clone takes.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const ioprioWhoUser = 3 // IOPRIO_WHO_USER

var dismantling = []uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // its operations pass no filter
	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
}

// metadata are the calls that change a file without writing it. Landlock does not
// govern them (as of ABI 10), so read-only needs this list beside it.
var metadata = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2,
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR,
}

func all(errno unix.Errno, numbers ...uint32) []call {
	t := make([]call, len(numbers))
	for i, n := range numbers {
		t[i] = call{n, deny(errno)}
	}
	return t
}
