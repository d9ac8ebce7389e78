// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Stage is a child that puts up less than all of the sandbox, to tell what each part costs.
type Stage struct {
	Name string
	Run  func() error
}

// Stages are the parts of the sandbox one after the other, each with all before it. They
// start the order's program directly: no init watches, and nobody is told.
func Stages(o Order) ([]Stage, error) {
	ready, err := sandbox.Prepare(o.Profile, o.Workspace)
	if err != nil {
		return nil, err
	}
	p, err := programFor(o)
	if err != nil {
		return nil, err
	}
	with := func(numbers ...uintptr) func() error {
		return func() error {
			confined, err := ready.Steps(wire.HomeDir)
			if err != nil {
				return err
			}
			confined = slices.DeleteFunc(confined, func(s sandbox.Step) bool {
				if s.Want[0] != 0 {
					return !slices.Contains(numbers, 0)
				}
				return !slices.Contains(numbers, s.Number)
			})
			return runBare(p, confined)
		}
	}
	rest := []uintptr{unix.SYS_PRLIMIT64, unix.SYS_PRCTL, unix.SYS_MKDIRAT, unix.SYS_CLOSE_RANGE}
	domain := append(rest[:4:4], unix.SYS_LANDLOCK_RESTRICT_SELF)
	filter := append(domain[:5:5], unix.SYS_SECCOMP)
	return []Stage{
		{"fork", with()}, {"limits", with(rest...)}, {"landlock", with(domain...)}, {"seccomp", with(filter...)},
		{"selftest", with(append(filter[:6:6], 0)...)},
	}, nil
}

func runBare(p program, confined []sandbox.Step) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	plan, err := p.plan(0, null, pair[0], confined)
	if err != nil {
		return err
	}
	c, err := fork(plan)
	if err != nil {
		return err
	}
	defer unix.Close(c.pidfd)
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(c.pid, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ws != 0 {
			return fmt.Errorf("the program ended with %d: %w", ws, err)
		}
		return nil
	}
}
