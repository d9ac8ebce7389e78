// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A log that no agent writes is an error and never a guess: a request to a person is decided and used once, by what
// it is for, and nothing is compacted away from under an open call.
func TestALogThatMakesNoSense(t *testing.T) {
	asking := func(h *history) { h.asking() }
	granted := func(h *history) { h.granted() }
	used := func(h *history) {
		h.granted()
		h.use(decodeCalls(h.f.turn.calls)[0])
	}
	decided := func(id, decision string) entry {
		return entry{eventlog.TypeApprovalDecided, eventlog.ApprovalDecided{ID: id, Decision: decision}}
	}
	use := func(id, call string) entry {
		return entry{eventlog.TypeGrantUsed, eventlog.GrantUsed{ID: id, CallID: call}}
	}
	for name, tc := range map[string]struct {
		before func(*history)
		event  entry
		makes  bool // sense
	}{
		"a decision":                           {asking, decided("a1", eventlog.DecisionGranted), true},
		"a decision on another request":        {asking, decided("a2", eventlog.DecisionGranted), false},
		"a decision on none":                   {func(*history) {}, decided("a1", eventlog.DecisionGranted), false},
		"the same decision again":              {granted, decided("a1", eventlog.DecisionGranted), false},
		"a grant that is withdrawn":            {granted, decided("a1", eventlog.DecisionWithdrawn), true},
		"a decision on a grant that is spent":  {used, decided("a1", eventlog.DecisionWithdrawn), false},
		"a grant that is used":                 {granted, use("a1", "1.1.1"), true},
		"a grant that nobody has given":        {asking, use("a1", "1.1.1"), false},
		"a grant of another request":           {granted, use("a2", "1.1.1"), false},
		"a grant of another call":              {granted, use("a1", "1.1.2"), false},
		"a grant that is spent":                {used, use("a1", "1.1.1"), false},
		"a second request while one is open":   {asking, entry{eventlog.TypeApprovalRequested, eventlog.ApprovalRequested{ID: "a2", CallID: "1.1.1", Profile: mustJSON(policy.Profile{})}}, false},
		"a second request beside a grant":      {granted, entry{eventlog.TypeApprovalRequested, eventlog.ApprovalRequested{ID: "a2", CallID: "1.1.1", Profile: mustJSON(policy.Profile{})}}, false},
		"a request when the last one is spent": {used, entry{eventlog.TypeApprovalRequested, eventlog.ApprovalRequested{ID: "a2", CallID: "1.1.1", Profile: mustJSON(policy.Profile{})}}, true},
		"a request of no call":                 {func(h *history) { h.firstRequest(); h.answer(1) }, entry{eventlog.TypeApprovalRequested, eventlog.ApprovalRequested{ID: "a1", CallID: "1.1.2", Profile: mustJSON(policy.Profile{})}}, false},
		"a start of no call":                   {func(h *history) { h.firstRequest(); h.answer(1) }, entry{eventlog.TypeToolStart, eventlog.ToolStart{CallID: "1.1.2"}}, false},
		"a result of no call":                  {func(h *history) { h.firstRequest(); h.answer(1) }, entry{eventlog.TypeToolResult, eventlog.ToolResult{CallID: "1.1.2"}}, false},
		"a compaction under an open call":      {func(h *history) { h.firstRequest(); h.answer(1) }, entry{eventlog.TypeCompaction, eventlog.Compaction{Summary: "s"}}, false},
		"the end of a step with an open call":  {func(h *history) { h.firstRequest(); h.answer(1) }, entry{eventlog.TypeStepEnd, eventlog.StepEnd{Turn: 1, Step: 1}}, false},
		"a message that came before":           {func(h *history) { h.message("hi") }, entry{eventlog.TypeMessageReceived, eventlog.MessageReceived{UID: "m1"}}, false},
		"a turn of no message":                 {func(*history) {}, entry{eventlog.TypeTurnStart, eventlog.TurnStart{Turn: 1, MessageUID: "m1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			tc.before(h)
			data, err := json.Marshal(tc.event.data)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.f.apply(eventlog.Event{Seq: h.f.seq + 1, Type: tc.event.kind, Data: data}); (err == nil) != tc.makes {
				t.Errorf("the event gives %v", err)
			}
		})
	}
}

// One call waits for a person, or has a grant, and no other is put before one meanwhile.
func TestOneRequestAtATime(t *testing.T) {
	h := newHistory(t)
	h.switchTo(policy.Policy{Approval: policy.ApprovalAsk})
	h.firstRequest()
	h.wishes = []policy.Mode{policy.WorkspaceWrite, policy.WorkspaceWrite}
	h.answer(2)
	calls := decodeCalls(h.f.turn.calls)
	refusal := func() string { return h.f.refusesAsk(calls[1].call, workspace, true) }
	if got := refusal(); got != "" {
		t.Errorf("the first request is refused: %s", got)
	}
	h.ask(calls[0])
	if got := refusal(); got != textPending {
		t.Errorf("while one waits, the second is told %q", got)
	}
	h.record(h.f.planDecision(wire.Decision{CallID: h.f.asked.CallID, Digest: h.f.asked.Digest, Decision: wire.Approved}, h.now)...)
	if got := refusal(); got != textPending {
		t.Errorf("beside a grant, the second is told %q", got)
	}
	h.use(calls[0])
	if got := refusal(); got != "" {
		t.Errorf("when the grant is spent, the second is told %q", got)
	}
}
