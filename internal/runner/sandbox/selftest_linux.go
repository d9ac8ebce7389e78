// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// tests try what must fail under a mode. They are the last steps before exec: a layer
// that is absent shows here, while nothing of the call has run yet.
func tests(p policy.Profile, workspace string, parent int) ([]Step, error) {
	m, pid := p.Mode, uintptr(parent)
	protocol := uintptr(0)
	if p.Network == policy.NetworkOpen {
		protocol = unix.IPPROTO_MPTCP // refused with an open network too
	}
	abi, _ := landlockABI() // 0 with an error
	steps := []Step{
		{What: "limiting its parent", Number: unix.SYS_PRLIMIT64, Args: args(pid, unix.RLIMIT_CORE), Want: wants(unix.EPERM)},
		{What: "opening an internet socket", Number: unix.SYS_SOCKET,
			Args: args(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol), Want: wants(unix.EPERM)},
	}
	if abi >= MinimumABI {
		steps = append(steps, Step{What: "signalling its parent", Number: unix.SYS_KILL, Args: args(pid, 0), Want: wants(unix.EPERM)})
	}
	if m == policy.DangerFullAccess {
		return steps, nil
	}
	if abi >= FilesABI {
		// A file of one's own that permissions allow to write: only Landlock refuses it.
		steps = append(steps, Step{What: "writing outside the workspace", Number: unix.SYS_OPENAT,
			Args: args(atCwd, 0, unix.O_WRONLY|unix.O_CLOEXEC), Want: wants(unix.EACCES)}.withPath(1, "/proc/thread-self/comm"))
	}
	if m == policy.WorkspaceWrite {
		return steps, nil
	}
	file := filepath.Join(workspace, ".sandbox-test")
	unlink := Step{Number: unix.SYS_UNLINKAT, Args: args(atCwd)}.withPath(1, file)
	var st unix.Stat_t
	if err := unix.Stat(workspace, &st); err != nil {
		return nil, err
	}
	return append(steps,
		Step{What: "creating a file in the workspace", Number: unix.SYS_OPENAT,
			Args: args(atCwd, 0, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600),
			Want: wants(unix.EACCES, unix.EROFS), Undo: &unlink}.withPath(1, file),
		// The mode that it already has: should it succeed, nothing has changed.
		Step{What: "changing a mode", Number: unix.SYS_FCHMODAT, Args: args(atCwd, 0, uintptr(st.Mode&0o7777)),
			Want: wants(unix.EROFS)}.withPath(1, workspace),
	), nil
}

func wants(errnos ...unix.Errno) (all [2]unix.Errno) {
	copy(all[:], errnos)
	return all
}
