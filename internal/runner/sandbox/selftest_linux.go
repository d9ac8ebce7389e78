// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Test tries, on the calling thread, what must fail under the profile. It is the last
// step before exec: a layer that is absent, or was put on another thread, shows here,
// while nothing of the call has run yet.
func Test(p policy.Profile, workspace string) error {
	if withoutTest() {
		return nil
	}
	for _, t := range trials(p.Mode, workspace) {
		if err := t.try(); !isOneOf(err, t.want) {
			return fmt.Errorf("the sandbox does not hold: %s gave %s", t.what, outcome(err))
		}
	}
	return nil
}

type trial struct {
	what string
	want []unix.Errno
	try  func() error
}

func trials(m policy.Mode, workspace string) []trial {
	ts := []trial{
		{"signalling its parent", []unix.Errno{unix.EPERM}, func() error { return unix.Kill(unix.Getppid(), 0) }},
		{"limiting its parent", []unix.Errno{unix.EPERM}, func() error {
			return unix.Prlimit(unix.Getppid(), unix.RLIMIT_CORE, nil, nil)
		}},
		{"opening an internet socket", []unix.Errno{unix.EPERM}, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			closeOnSuccess(fd, err)
			return err
		}},
	}
	if m == policy.DangerFullAccess {
		return ts
	}
	// A file of one's own that permissions allow to write: only Landlock refuses it.
	ts = append(ts, trial{"writing outside the workspace", []unix.Errno{unix.EACCES}, func() error {
		fd, err := unix.Open("/proc/thread-self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		closeOnSuccess(fd, err)
		return err
	}})
	if m == policy.WorkspaceWrite {
		return ts
	}
	return append(ts,
		trial{"creating a file in the workspace", []unix.Errno{unix.EACCES, unix.EROFS}, func() error {
			name := filepath.Join(workspace, ".sandbox-test")
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err == nil {
				_ = unix.Unlink(name)
			}
			closeOnSuccess(fd, err)
			return err
		}},
		// The mode that it already has: should it succeed, nothing has changed.
		trial{"changing a mode", []unix.Errno{unix.EROFS}, func() error {
			var st unix.Stat_t
			if err := unix.Stat(workspace, &st); err != nil {
				return err
			}
			return unix.Fchmodat(unix.AT_FDCWD, workspace, st.Mode&0o7777, 0)
		}},
	)
}

func closeOnSuccess(fd int, err error) {
	if err == nil {
		_ = unix.Close(fd)
	}
}

func isOneOf(err error, want []unix.Errno) bool {
	for _, w := range want {
		if errors.Is(err, w) {
			return true
		}
	}
	return false
}

func outcome(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprintf("%q", err.Error())
}
