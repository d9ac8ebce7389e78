// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Prepared is what every call of a profile has in common, made once.
type Prepared struct {
	profile   policy.Profile
	workspace string
	ruleset   int // of the profile's Landlock domain; -1 without one
	filter    *unix.SockFprog
	limits    []Step
	steps     []Step // of a mode whose steps are the same for every call
}

// Prepare makes the rules of a profile. They bind nobody yet.
func Prepare(p policy.Profile, workspace string) (*Prepared, error) {
	if err := Admit(p); err != nil {
		return nil, err
	}
	ready := &Prepared{profile: p, workspace: workspace, ruleset: -1}
	var err error
	if ready.limits, err = limits(); err != nil {
		return nil, err
	}
	if ready.filter, err = filterOf(p); err != nil {
		return nil, err
	}
	if !withoutLandlock() {
		ready.ruleset, err = rulesetOf(p, workspace)
	}
	return ready, err
}

// Steps confine a child of the calling process and test on the spot that what must
// fail fails, in the order in which each still permits the next. Home is made if the
// profile lets it; descriptors above 2 are closed by exec.
func (r *Prepared) Steps(home string) ([]Step, error) {
	if r.steps != nil {
		return r.steps, nil
	}
	steps, err := r.makeSteps(home)
	if err == nil && r.profile.Mode != policy.ReadOnly { // whose test depends on the workspace as it is
		r.steps = slices.Clip(steps)
	}
	return steps, err
}

func (r *Prepared) makeSteps(home string) ([]Step, error) {
	steps := append(slices.Clip(r.limits),
		Call("setting no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1))
	if r.ruleset >= 0 {
		steps = append(steps, Call("entering a Landlock domain", unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.ruleset), 0))
	}
	mkdir := Step{What: "making the home directory", Number: unix.SYS_MKDIRAT, Args: args(atCwd, 0, 0o700), Any: true}
	steps = append(steps, mkdir.withPath(1, home),
		Call("closing descriptors", unix.SYS_CLOSE_RANGE, 3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC))
	if !withoutSeccomp() {
		filter := Call("installing the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, address(r.filter))
		filter.Keep = r.filter
		steps = append(steps, filter)
	}
	if withoutTest() {
		return steps, nil
	}
	tests, err := tests(r.profile, r.workspace, os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("preparing the test of the sandbox: %w", err)
	}
	return append(steps, tests...), nil
}

// atCwd is AT_FDCWD as an argument.
const atCwd = ^uintptr(-unix.AT_FDCWD - 1)
