// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// ForbidPrivileges sets no_new_privs, which Landlock and seccomp need. The pod has set it already.
func ForbidPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	return nil
}

// Hide makes the process's memory, descriptors and environment in /proc unreadable
// for others of the same user, until it execs.
func Hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming non-dumpable: %w", err)
	}
	return nil
}

// Bounds of one call beside the pod's own. The number of processes is the pod's
// business: RLIMIT_NPROC counts per user on the whole node.
const (
	maxFileSize    = 16 << 30
	maxDescriptors = 16384
)

// limits are the steps that set the resource limits of a call.
func limits() ([]Step, error) {
	var steps []Step
	for _, l := range []struct {
		name  string
		which int
		max   uint64
	}{
		{"core files", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, maxFileSize},
		{"descriptors", unix.RLIMIT_NOFILE, maxDescriptors},
	} {
		var old unix.Rlimit
		if err := unix.Getrlimit(l.which, &old); err != nil {
			return nil, fmt.Errorf("reading the limit on %s: %w", l.name, err)
		}
		n := min(l.max, old.Max)
		limit := &unix.Rlimit{Cur: n, Max: n}
		steps = append(steps, Step{What: "limiting " + l.name, Number: unix.SYS_PRLIMIT64,
			Args: args(0, uintptr(l.which), address(limit), 0), Keep: limit})
	}
	return steps, nil
}

// maxInstructions is the kernel's limit for one filter (BPF_MAXINSNS in linux/bpf_common.h).
const maxInstructions = 4096

// filterOf assembles the filter of a profile.
func filterOf(p policy.Profile) (*unix.SockFprog, error) {
	program, err := Filter(p)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assembling the seccomp filter: %w", err)
	}
	if len(raw) > maxInstructions {
		return nil, fmt.Errorf("the seccomp filter has %d instructions; the kernel takes %d", len(raw), maxInstructions)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}, nil //nolint:gosec // at most maxInstructions
}

// HasSeccomp reports whether the kernel takes seccomp filters here.
func HasSeccomp() bool {
	// Asked with a nil program, a kernel that has them complains about the address.
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	return errors.Is(errno, unix.EFAULT)
}
