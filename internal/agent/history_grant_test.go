// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// endsGrant reports whether a call that runs with a grant could not be let run under a policy.
func (h *history) endsGrant(p policy.Policy) bool {
	for _, c := range h.running {
		if c.grant != "" && !c.profile.Within(p.Widest()) {
			return true
		}
	}
	return false
}

// timePasses is how silence becomes a denial.
func (h *history) timePasses(seconds int) {
	h.now = h.now.Add(time.Duration(seconds) * time.Second)
	if h.f.asked.overdue(h.now) {
		h.record(h.f.planClose(eventlog.DecisionExpired, "")...)
		h.commit()
	}
}

// startOrAsk offers what may happen to a call that has not started: it starts, or it is put before
// a person, who says yes, no or nothing.
func (h *history) startOrAsk(t *rapid.T, i int, do map[string]func()) {
	c := h.f.turn.calls[i]
	w := decodeCalls([]*call{c})[0]
	if w.call.Wants == nil {
		do["start"] = func() { h.start(i) }
		return
	}
	r := h.f.asked
	if r == nil || r.CallID != c.id {
		do["ask"] = func() { h.ask(w) }
		return
	}
	if h.f.turn.cancelled {
		do["abandon"] = func() {
			h.record(h.f.planOpenCalls(errCancelled)...)
			h.endStep()
		}
		return
	}
	digest := rapid.SampledFrom([]string{r.Digest, r.Digest, r.Digest, "another"}).Draw(t, "digest")
	d := wire.Decision{CallID: c.id, Digest: digest, Decision: rapid.SampledFrom([]wire.Answer{wire.Approved, wire.Denied}).Draw(t, "decision"), By: "ann"}
	do["decide"] = func() { // at any time, more than once
		h.record(h.f.planDecision(d, h.now)...)
		h.commit()
	}
	switch {
	case r.granted() && len(h.running) == 0:
		do["use"] = func() { h.use(w) }
	case !r.open():
		do["refused"] = func() {
			h.record(h.f.planRefused()...)
			h.endStep()
		}
	}
}

func (h *history) ask(w work) {
	h.t.Helper()
	if why := h.f.refusesAsk(w.call, workspace, true); why != "" {
		h.record(entry{eventlog.TypeToolResult, refusal(w.id, eventlog.OutcomeRefused, why)})
		h.endStep()
		return
	}
	ask, err := h.f.planAsk(w.id, w.call, workspace, testUID, h.now.Add(time.Minute))
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	h.record(ask)
	h.commit()
}

// use starts the call of a grant; the crash that may follow can come between its two events.
func (h *history) use(w work) {
	h.t.Helper()
	digest, err := w.call.RequestDigest(workspace, w.call.Wants.Mode, testUID, w.id)
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	profile, ok := h.f.grantFor(w.id, digest, h.now)
	if !ok {
		h.t.Fatalf("a grant that is open is none")
	}
	id, by := h.f.asked.ID, h.f.asked.by
	told := h.f.toldProfile()
	h.record(h.f.planGranted(w.id, profile, h.epoch)...)
	i := slices.IndexFunc(h.f.turn.calls, func(c *call) bool { return c.id == w.id })
	h.running[i] = &passed{id: w.id, profile: profile, told: told, policy: h.f.policy.doc.Policy, grant: id, by: by}
}

// asking puts a call for workspace-write before a person, and granted has it allowed.
func (h *history) asking() {
	h.t.Helper()
	h.switchTo(policy.Policy{Approval: policy.ApprovalAsk})
	h.message("hi")
	h.openTurn()
	h.request()
	h.wishes = []policy.Mode{policy.WorkspaceWrite}
	h.answer(1)
	h.ask(decodeCalls(h.f.turn.calls)[0])
}

func (h *history) granted() {
	h.t.Helper()
	h.asking()
	h.record(h.f.planDecision(wire.Decision{CallID: h.f.asked.CallID, Digest: h.f.asked.Digest, Decision: wire.Approved}, h.now)...)
}

// The histories reach what they are for, and the laws hold in them.
func TestHistoriesUseGrants(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.switchTo(policy.Policy{Approval: policy.ApprovalAsk})
		for range 150 {
			h.step(t)
		}
		checkLaws(t, workspace, h.events, h.bodies)
		for _, e := range h.events {
			switch e.Type {
			case eventlog.TypeGrantUsed:
				seen["used"]++
			case eventlog.TypeApprovalDecided:
				seen[read[eventlog.ApprovalDecided](t, e).Decision]++
			}
		}
	})
	for _, what := range []string{"used", eventlog.DecisionGranted, eventlog.DecisionDenied, eventlog.DecisionExpired, eventlog.DecisionWithdrawn} {
		if seen[what] == 0 {
			t.Errorf("no history has %s: %v", what, seen)
		}
	}
}
