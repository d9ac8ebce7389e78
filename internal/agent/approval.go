// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// maxAsks is how often one turn may put a call before a person.
const maxAsks = 10

// What the model reads of a call that asked for more and did not run.
const (
	textNobody  = "not run: nobody is asked for more under the approval policy never. This is final; make the call without sandbox_permissions."
	textChanged = "not run: the policy of the session changed after this call was asked for. Go by the newest context snapshot, and try the call without sandbox_permissions first."
	textPending = "not run: another call waits for a person already, and only one may."
	textTooLong = "not run: this call is too long to be shown whole to the person who would decide, so it cannot be asked for. Ask for less at once."
	textAsks    = "not run: a person was asked as often as one turn may. Go on without, and say what is missing."
)

// Why a request was withdrawn.
const (
	withdrawnByPolicy = "the policy of the session changed"
	withdrawnByChange = "what would run is no longer what was shown"
)

// question is a request to a person: the newest one of the session.
type question struct {
	seq uint64
	eventlog.ApprovalRequested
	profile  policy.Profile // that a grant gives
	decision string         // empty while it is pending
	by, text string         // of the decision
	used     bool           // its grant is spent
}

// open reports whether it can still come to a start.
func (r *question) open() bool {
	return r != nil && !r.used && (r.decision == "" || r.decision == eventlog.DecisionGranted)
}

func (r *question) pending() bool { return r.open() && r.decision == "" }

func (r *question) granted() bool { return r.open() && r.decision == eventlog.DecisionGranted }

// overdue reports whether silence has become a denial, or a grant was not used in time.
func (r *question) overdue(now time.Time) bool { return r.open() && !now.Before(r.ExpiresAt) }

func (f *fold) applyAsked(e eventlog.Event, p eventlog.ApprovalRequested) error {
	if f.asked.open() {
		return fmt.Errorf("request %s is open already", f.asked.ID)
	}
	r := &question{seq: e.Seq, ApprovalRequested: p}
	if err := json.Unmarshal(p.Profile, &r.profile); err != nil {
		return fmt.Errorf("decoding what a grant gives: %w", err)
	}
	f.asked = r
	f.asks++
	f.turn.asks++
	return f.onCall(p.CallID, func(*call) {})
}

func (f *fold) applyDecided(p eventlog.ApprovalDecided) error {
	r := f.asked
	if !r.open() || r.ID != p.ID || r.decision == p.Decision {
		return fmt.Errorf("request %s is not open", p.ID)
	}
	r.decision, r.by, r.text = p.Decision, p.By, p.Message
	return nil
}

func (f *fold) applyUsed(p eventlog.GrantUsed) error {
	if !f.asked.granted() || f.asked.ID != p.ID || f.asked.CallID != p.CallID {
		return fmt.Errorf("there is no unused grant %s for call %s", p.ID, p.CallID)
	}
	f.asked.used = true
	return nil
}

// refusesAsk says why a call cannot be put before a person now, or "". Reachable tells whether
// the node enforces the mode that it asks for.
func (f *fold) refusesAsk(c tool.Call, workspace string, reachable bool) string {
	p, want := f.policy.doc.Policy, c.Wants.Mode
	_, whole := c.Preview(workspace)
	switch {
	case p.Approval != policy.ApprovalAsk:
		return textNobody
	case policy.Withdraws(f.policies[f.told()], p):
		return textChanged
	case want <= p.Mode:
		return fmt.Sprintf("not run: %s is no wider than the standing mode, %s. Make the call without sandbox_permissions.", want, p.Mode)
	case want > p.Ceiling.Mode:
		return fmt.Sprintf("not run: %s is above what this session may be given, which is %s at most. This is final for %s.", want, p.Ceiling.Mode, want)
	case !reachable:
		return fmt.Sprintf("not run: the node cannot enforce %s, so nothing runs in it. This is final.", want)
	case !whole:
		return textTooLong
	case f.asked.open():
		return textPending
	case f.turn.asks >= maxAsks:
		return textAsks
	}
	return ""
}

// planAsk puts a call before a person.
func (f *fold) planAsk(id string, c tool.Call, workspace, sessionUID string, until time.Time) (entry, error) {
	preview, _ := c.Preview(workspace)
	digest, err := c.RequestDigest(workspace, c.Wants.Mode, sessionUID, id)
	if err != nil {
		return entry{}, fmt.Errorf("making the digest of a request: %w", err)
	}
	profile := f.policy.doc.Policy.Profile()
	profile.Mode = c.Wants.Mode
	return entry{eventlog.TypeApprovalRequested, eventlog.ApprovalRequested{
		ID: fmt.Sprintf("a%d", f.asks+1), CallID: id, Permissions: c.Wants.Mode.String(), Justification: c.Wants.Justification,
		Profile: mustJSON(profile), ExpiresAt: until, PolicySeq: f.policy.seq, Tool: c.Tool.Name, Preview: preview, Digest: digest,
	}}, nil
}

// planDecision takes over what a person said. Whatever is not for the request that is pending
// now, to the digest, is nothing.
func (f *fold) planDecision(d wire.Decision, now time.Time) []entry {
	r := f.asked
	if !r.pending() || r.CallID != d.CallID || r.Digest != d.Digest {
		return nil
	}
	if r.overdue(now) {
		return f.planClose(eventlog.DecisionExpired, "")
	}
	decision := eventlog.DecisionDenied
	if d.Decision == wire.Approved {
		decision = eventlog.DecisionGranted
	}
	return []entry{{eventlog.TypeApprovalDecided, eventlog.ApprovalDecided{
		ID: r.ID, Decision: decision, By: cutText(d.By, maxBy), Message: cutText(d.Reason, maxReason),
	}}}
}

// planClose ends the request, if one is open.
func (f *fold) planClose(decision, why string) []entry {
	if !f.asked.open() {
		return nil
	}
	return []entry{{eventlog.TypeApprovalDecided, eventlog.ApprovalDecided{ID: f.asked.ID, Decision: decision, Message: why}}}
}

// planWithdrawal ends the request if the policy that comes is another one than it was asked under.
func (f *fold) planWithdrawal(to policy.Policy) []entry {
	if !policy.Withdraws(f.policy.doc.Policy, to) {
		return nil
	}
	return f.planClose(eventlog.DecisionWithdrawn, withdrawnByPolicy)
}

// grantFor is what a call may run under because a person said so. It holds for exactly what was
// shown, until its time is over, and within what a person can give now.
func (f *fold) grantFor(id, digest string, now time.Time) (policy.Profile, bool) {
	r := f.asked
	if !r.granted() || r.CallID != id || r.Digest != digest || r.overdue(now) {
		return policy.Profile{}, false
	}
	return r.profile, r.profile.Within(f.policy.doc.Policy.Widest())
}

// planGranted says under what a call with a grant starts. The grant is spent before the start is
// logged: no crash in between makes it start twice.
func (f *fold) planGranted(id string, profile policy.Profile, epoch wire.Epoch) []entry {
	return []entry{
		{eventlog.TypeGrantUsed, eventlog.GrantUsed{ID: f.asked.ID, CallID: id, Epoch: epoch.Counter, Profile: mustJSON(profile)}},
		{eventlog.TypeToolStart, eventlog.ToolStart{
			CallID: id, PolicySeq: f.policy.seq, ToldSeq: f.told(), Epoch: epoch.Counter, Profile: mustJSON(profile), Grant: f.asked.ID,
		}},
	}
}

// planRefused answers the call of a request that came to no start.
func (f *fold) planRefused() []entry {
	r := f.asked
	var text string
	switch {
	case r.used:
		text = "not started: the agent was restarted before this call began. Nothing happened, but what was granted is spent."
	case r.decision == eventlog.DecisionDenied:
		text = fmt.Sprintf("denied: %s decided against it", orElse(r.by, "a person"))
		if r.text != "" {
			text += ": " + r.text
		}
		text += "\nThe call did not run. This is final: do not ask for the same again."
	case r.decision == eventlog.DecisionExpired:
		text = "denied: nobody let it run in time. The call did not run. This is final: do not ask for the same again in this turn."
	default:
		text = "not run: the request was withdrawn, because " + r.text + "."
	}
	return []entry{{eventlog.TypeToolResult, refusal(r.CallID, eventlog.OutcomeRefused, text)}}
}

// openCalls are the calls of the open step that were put before a person and have neither started
// nor a result: one at most.
func (f *fold) openCalls() []*call {
	return slices.DeleteFunc(slices.Clone(f.turn.calls), func(c *call) bool {
		return c.done || c.started || f.asked == nil || f.asked.CallID != c.id
	})
}

// planOpenCalls ends what waits for a person together with its turn.
func (f *fold) planOpenCalls(why error) []entry {
	switch {
	case len(f.openCalls()) == 0:
		return nil
	case !f.asked.open():
		return f.planRefused()
	}
	return append(f.planClose(eventlog.DecisionWithdrawn, why.Error()), entry{
		eventlog.TypeToolResult, refusal(f.asked.CallID, eventlog.OutcomeRefused, runtimecontext.ResultText("not run: "+why.Error()+".")),
	})
}

// Bounds of what a decision says, in bytes.
const (
	maxBy     = 256
	maxReason = 1024
)

// checkDecisions finds what is wrong with decisions by themselves.
func checkDecisions(all []wire.Decision) error {
	if len(all) > wire.MaxApprovals {
		return fmt.Errorf("decisions: %d are more than %d", len(all), wire.MaxApprovals)
	}
	for i, d := range all {
		switch {
		case d.CallID == "" || d.Digest == "":
			return fmt.Errorf("decisions[%d]: callID or digest is empty", i)
		case d.Decision != wire.Approved && d.Decision != wire.Denied:
			return fmt.Errorf("decisions[%d].decision: %.60q is neither %s nor %s", i, d.Decision, wire.Approved, wire.Denied)
		}
	}
	return nil
}

// errNotGranted is why a call that needs a grant does not start.
var errNotGranted = errors.New("the call has no grant")
