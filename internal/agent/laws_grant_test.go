// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
)

// The laws of grants: a request is opened only where a person may be asked for what it asks; it
// ends with the policy under which it was asked; a grant is spent once, on its own call.

func (l *laws) onAsk(e eventlog.Event) {
	l.t.Helper()
	p := read[eventlog.ApprovalRequested](l.t, e)
	a := &lawAsk{call: p.CallID}
	if err := json.Unmarshal(p.Profile, &a.profile); err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	stands := l.policies[l.standing]
	if stands.Approval != policy.ApprovalAsk || a.profile.Mode <= stands.Mode || a.profile.Mode > stands.Ceiling.Mode || a.profile.Network != stands.Network {
		l.t.Fatalf("I2: event %d asks for %+v under %+v", e.Seq, a.profile, stands)
	}
	for id, other := range l.asked {
		if other.state == "" || other.state == eventlog.DecisionGranted {
			l.t.Fatalf("I2: event %d asks while %s is open", e.Seq, id)
		}
	}
	if _, twice := l.asked[p.ID]; twice {
		l.t.Fatalf("I2: event %d asks again as %s", e.Seq, p.ID)
	}
	l.asked[p.ID] = a
}

func (l *laws) onDecision(e eventlog.Event) {
	l.t.Helper()
	p := read[eventlog.ApprovalDecided](l.t, e)
	a := l.asked[p.ID]
	first := a != nil && a.state == ""
	if !first && (a == nil || a.state != eventlog.DecisionGranted || p.Decision != eventlog.DecisionExpired && p.Decision != eventlog.DecisionWithdrawn) {
		l.t.Fatalf("I2: event %d decides %s, which is not open", e.Seq, p.ID)
	}
	a.state = p.Decision
}

func (l *laws) onGrant(e eventlog.Event) {
	l.t.Helper()
	p := read[eventlog.GrantUsed](l.t, e)
	if a := l.asked[p.ID]; a == nil || a.state != eventlog.DecisionGranted || a.call != p.CallID {
		l.t.Fatalf("I2: event %d uses %s, which is no grant for %s", e.Seq, p.ID, p.CallID)
	}
	l.asked[p.ID].state = "used"
}

// grant is what a start that names one runs under. The grant was logged right before it.
func (l *laws) grant(e eventlog.Event, p eventlog.ToolStart) policy.Profile {
	l.t.Helper()
	a := l.asked[p.Grant]
	if a == nil || a.state != "used" || a.call != p.CallID {
		l.t.Fatalf("I2: event %d starts %s with %s, which is no grant for it", e.Seq, p.CallID, p.Grant)
	}
	stands := l.policies[l.standing]
	if stands.Approval != policy.ApprovalAsk || a.profile.Mode > stands.Ceiling.Mode || a.profile.Network != stands.Network {
		l.t.Fatalf("I2: event %d starts %s under %+v, above %+v", e.Seq, p.CallID, a.profile, stands)
	}
	a.state = "started"
	return a.profile
}
