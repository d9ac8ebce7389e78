// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// errLeftOpen says that the agent ends while a call waits for a person. The next boot takes it up.
var errLeftOpen = errors.New("a call waits for a person")

// escalate puts a call before a person and waits. It reports whether the call may start; if not,
// its result is in the log. A change of policy never waits for it: it ends the request.
func (a *Agent) escalate(ctx context.Context, w work) (granted bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.f.asked; r == nil || r.CallID != w.id { // else an earlier boot has asked
		if asks, err := a.askLocked(ctx, w); !asks || err != nil {
			return false, err
		}
	}
	err = a.awaitLocked(ctx, func() bool { return !a.f.asked.pending() })
	if err != nil || ctx.Err() != nil {
		return false, a.abandonLocked(ctx)
	}
	if a.f.asked.granted() {
		return true, nil
	}
	// The model must not read that the policy changed before the snapshot that says how.
	if err := a.awaitLocked(ctx, func() bool { return a.target == a.applied }); err != nil {
		return false, a.abandonLocked(ctx)
	}
	return false, a.refusedLocked()
}

// askLocked logs a request, or the result that says why there can be none.
func (a *Agent) askLocked(ctx context.Context, w work) (bool, error) {
	// What is asked of a person must hold when they read it.
	if err := a.awaitLocked(ctx, a.settledLocked); err != nil || ctx.Err() != nil {
		return false, a.answerLocked(w.id, eventlog.OutcomeNotStarted, "not started: "+stopText(ctx)+". Nothing happened.")
	}
	if why := a.f.refusesAsk(w.call, a.config.Workspace, a.reachesLocked(w.call.Wants.Mode)); why != "" {
		return false, a.answerLocked(w.id, eventlog.OutcomeRefused, why)
	}
	ask, err := a.f.planAsk(w.id, w.call, a.config.Workspace, a.o.SessionUID, a.o.Now().Add(a.approvalTimeoutLocked()).UTC())
	if err != nil {
		return false, err
	}
	err = a.recordLocked(ask)
	a.publishLocked()
	return err == nil, err
}

// settledLocked reports whether calls may start and no other policy is on its way.
func (a *Agent) settledLocked() bool { return a.openLocked() && a.target == a.applied }

func (a *Agent) approvalTimeoutLocked() time.Duration {
	if s := a.config.ApprovalTimeoutSeconds; s > 0 {
		return time.Duration(s) * time.Second
	}
	return wire.DefaultApprovalTimeout
}

// reachesLocked reports whether calls of a mode can run on this node at all.
func (a *Agent) reachesLocked(m policy.Mode) bool {
	needed := wire.LevelNeeded(a.config.MinimumLevel, m)
	container := wire.ContainerFor(policy.Profile{Mode: m})
	return slices.ContainsFunc(a.containersLocked(), func(c wire.Container) bool {
		return c.Name == container && c.Report.Level.AtLeast(needed)
	})
}

// abandonLocked ends a wait that has no end by itself. When the agent is ending, the call stays open.
func (a *Agent) abandonLocked(ctx context.Context) error {
	why := context.Cause(ctx)
	if !errors.Is(why, errStopped) && !errors.Is(why, errCancelled) {
		return errLeftOpen
	}
	if !a.f.asked.open() { // decided at the same moment
		return a.refusedLocked()
	}
	err := a.recordLocked(a.f.planOpenCalls(why)...)
	a.publishLocked()
	return err
}

// notGranted answers a call that a person had let run, and that does not start all the same.
func (a *Agent) notGranted(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return a.abandonLocked(ctx)
	}
	return a.refusedLocked()
}

// refusedLocked answers a call that was asked for and may not start.
func (a *Agent) refusedLocked() error {
	now := a.o.Now()
	switch r := a.f.asked; {
	case r.overdue(now):
		if err := a.recordLocked(a.f.planClose(eventlog.DecisionExpired, "")...); err != nil {
			return err
		}
	case r.open():
		if err := a.recordLocked(a.f.planClose(eventlog.DecisionWithdrawn, withdrawnByChange)...); err != nil {
			return err
		}
	}
	err := a.recordLocked(a.f.planRefused()...)
	a.publishLocked()
	return err
}

func (a *Agent) answerLocked(id, outcome, text string) error {
	err := a.recordLocked(entry{eventlog.TypeToolResult, refusal(id, outcome, text)})
	a.publishLocked()
	return err
}

// decideLocked takes over what people said, in order; the first word on a request counts.
func (a *Agent) decideLocked(decisions []wire.Decision) error {
	for _, d := range decisions {
		if err := a.recordLocked(a.f.planDecision(d, a.o.Now())...); err != nil {
			return err
		}
	}
	return nil
}

// expireAskLocked makes silence a denial in time.
func (a *Agent) expireAskLocked() {
	if a.f.asked.overdue(a.o.Now()) && a.recordLocked(a.f.planClose(eventlog.DecisionExpired, "")...) == nil {
		a.publishLocked()
	}
}

// endsLocked reports whether going to a policy ends something that runs: whatever is wider in
// mode or network, and a call with a grant that nobody could give under it.
func (a *Agent) endsLocked(to policy.Policy) bool {
	return policy.EndsProcesses(a.standingLocked(), to) || a.granted != nil && !a.granted.profile.Within(to.Widest())
}

// approvalsLocked are the calls that wait for a person.
func (a *Agent) approvalsLocked() []wire.Approval {
	r := a.f.asked
	if !r.pending() {
		return nil
	}
	return []wire.Approval{{
		CallID: r.CallID, Seq: r.seq, PolicySeq: r.PolicySeq, Tool: r.Tool, Mode: r.profile.Mode, Preview: r.Preview, Digest: r.Digest,
		Justification: tool.Visible(r.Justification), ExpiresAt: r.ExpiresAt,
	}}
}

// offersLocked are the modes under which a call that was denied could run once, if a person
// let it. There are none where asking could not succeed.
func (a *Agent) offersLocked(w work, p *passed) []policy.Mode {
	standing := a.standingLocked()
	_, whole := w.call.Preview(a.config.Workspace) // not of a tool that cannot ask either
	if standing.Approval != policy.ApprovalAsk || !whole || p.grant != "" ||
		p.profile != standing.Profile() || policy.Withdraws(standing, a.target.doc.Policy) || a.f.turn.asks >= maxAsks {
		return nil
	}
	return slices.DeleteFunc(policy.Modes(), func(m policy.Mode) bool {
		return m <= standing.Mode || m > standing.Ceiling.Mode || !a.reachesLocked(m)
	})
}
