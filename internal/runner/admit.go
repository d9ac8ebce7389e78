// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// standing is what holds in a container until the agent says otherwise.
type standing struct {
	container   string
	workspace   string
	enforcement wire.Enforcement
	epoch       wire.Epoch
	bound       policy.Profile
	variables   []string // of commands
}

// most is how many calls may run at once. Without scopes they could signal one another,
// and only a sweep of the container can end one.
func (s standing) most() int {
	if s.enforcement.Level.AtLeast(wire.LevelFull) {
		return maxCalls
	}
	return 1
}

// refusal is why a call does not start.
type refusal struct {
	cause  wire.Cause
	denial wire.Denial
	detail string
}

func (r *refusal) exited(id string) *wire.Exited {
	return &wire.Exited{Call: id, Cause: r.cause, Denial: r.denial, Detail: r.detail}
}

func refused(denial wire.Denial, format string, args ...any) *refusal {
	return &refusal{wire.Refused, denial, fmt.Sprintf(format, args...)}
}

func setupFailed(format string, args ...any) *refusal {
	return &refusal{wire.SetupFailed, "", fmt.Sprintf(format, args...)}
}

// admit decides whether a call may start under what stands now.
func (s standing) admit(st *wire.Start) (tool.Call, *refusal) {
	if r := s.current(st.Epoch); r != nil {
		return tool.Call{}, r
	}
	if r := s.profile(st.Profile, st.Granted); r != nil {
		return tool.Call{}, r
	}
	if st.Workspace != s.workspace {
		return tool.Call{}, refused("", "the workspace of this container is %s, not %q", s.workspace, st.Workspace)
	}
	c, err := tool.Canonical(st.Tool, []byte(st.Arguments))
	if err != nil {
		return tool.Call{}, refused("", "%v", err)
	}
	if st.Digest != c.Digest {
		return tool.Call{}, refused("", "the arguments are not the ones that their digest was made of")
	}
	if err := call.CheckCommand(c.Arguments); err != nil {
		return tool.Call{}, refused("", "%v", err)
	}
	if r := s.terminal(c.Arguments); r != nil {
		return tool.Call{}, r
	}
	if !s.enforcement.Level.AtLeast(wire.LevelFor(st.Profile.Mode)) {
		return tool.Call{}, setupFailed("this node cannot enforce %s: %s", st.Profile.Mode, s.enforcement.Detail)
	}
	return c, nil
}

// terminal refuses a terminal where its command could not be ended alone, and whatever does
// not open one: that is between the agent and the terminal.
func (s standing) terminal(a tool.Arguments) *refusal {
	t, ok := a.(*tool.Terminal)
	switch {
	case !ok:
		return nil
	case t.Action != tool.Open:
		return refused("", "only open starts something in a terminal")
	case !s.enforcement.Level.AtLeast(wire.LevelFull):
		return refused("", "there are no terminals on this node: they need the enforcement level %s, it has %s", wire.LevelFull, s.enforcement.Level)
	}
	return nil
}

// current refuses a call of another time: it may have been ordered under another policy.
func (s standing) current(e wire.Epoch) *refusal {
	if e != s.epoch {
		return refused(wire.DeniedProfile, "the call belongs to epoch %s, it is %s now", e, s.epoch)
	}
	return nil
}

// profile refuses what is wider than the bound. A grant replaces the mode, and nothing else.
func (s standing) profile(p policy.Profile, granted bool) *refusal {
	bound := s.bound
	if granted {
		bound.Mode = max(bound.Mode, p.Mode)
	}
	switch {
	case sandbox.Admit(p) != nil:
		return refused(wire.DeniedProfile, "%v", sandbox.Admit(p))
	case !p.Within(bound):
		return refused(wire.DeniedProfile, "%s with network %s is wider than %s with network %s, which holds now",
			p.Mode, p.Network, s.bound.Mode, s.bound.Network)
	case wire.ContainerFor(p) != s.container:
		return refused(wire.DeniedProfile, "calls with mode %s run in the container %s, this is %s",
			p.Mode, wire.ContainerFor(p), s.container)
	}
	return nil
}
