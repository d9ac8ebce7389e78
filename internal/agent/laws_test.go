// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// laws reads a log from its beginning and checks what must hold of every one. It shares no
// code with what wrote it but the words of the policy.
type laws struct {
	t         fataler
	workspace string

	policies  map[uint64]policy.Policy
	standing  uint64
	told      uint64
	header    bool // a request/header stands since the last request
	answered  bool // an answer stands since the last request
	calls     map[string]lawCall
	lastBody  []byte
	lastFront []byte
	replay    *fold

	answers map[[2]int]bool // by turn and step
	asked   map[string]*lawAsk
	typed   map[string]bool // the calls, and whether they act on a terminal that is there

	suppressed bool // I1 and I4 are void, and told means standing
}

type lawCall struct {
	profile, told policy.Profile
	granted       bool
	ended         bool
}

// lawAsk is a request to a person.
type lawAsk struct {
	call    string
	profile policy.Profile
	state   string // of the decision; "" before, "used" after
}

// checkLaws checks a log and the bodies that an endpoint received, by their digests. Events may
// name bodies that never arrived, but not the other way round.
func checkLaws(t fataler, workspace string, events []eventlog.Event, bodies map[string][]byte) {
	t.Helper()
	l := &laws{t: t, workspace: workspace, policies: map[uint64]policy.Policy{}, calls: map[string]lawCall{}, replay: newFold(), answers: map[[2]int]bool{}, asked: map[string]*lawAsk{}, typed: map[string]bool{}}
	named := map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case eventlog.TypeSessionStart:
			l.suppressed = bytes.Contains(e.Data, []byte(`"runtimeContext":"Suppressed"`))
		case eventlog.TypePolicyApplied:
			l.onPolicy(e)
		case eventlog.TypeContextSnapshot:
			if l.suppressed {
				t.Fatalf("event %d states a policy in a session where that is suppressed", e.Seq)
			}
		case eventlog.TypeRequestHeader:
			l.header = true
		case eventlog.TypeRequestSent:
			p := read[eventlog.RequestSent](t, e)
			named[p.Digest] = true
			l.onRequest(e, p, l.rebuild(e, p))
		case eventlog.TypeAssistantMessage:
			p := read[eventlog.AssistantMessage](t, e)
			if at := [2]int{p.Turn, p.Step}; l.answers[at] {
				t.Fatalf("event %d: step %d of turn %d has an answer already", e.Seq, p.Step, p.Turn)
			} else {
				l.answers[at], l.answered = true, true
			}
		case eventlog.TypeCompaction:
			l.lastBody = nil // what follows is new, but for the front
		case eventlog.TypeApprovalRequested:
			l.onAsk(e)
		case eventlog.TypeApprovalDecided:
			l.onDecision(e)
		case eventlog.TypeGrantUsed:
			l.onGrant(e)
		case eventlog.TypeToolCall:
			p := read[eventlog.ToolCall](t, e)
			c, err := tool.Decode(p.Name, []byte(p.Arguments))
			args, terminal := c.Arguments.(*tool.Terminal)
			l.typed[p.CallID] = err == nil && terminal && args.Action != tool.Open
		case eventlog.TypeToolStart:
			l.onStart(e)
		case eventlog.TypeToolResult:
			l.onResult(e)
		}
		if err := l.replay.apply(e); err != nil {
			t.Fatalf("the log makes no sense: %v", err)
		}
	}
	for digest := range bodies {
		if !named[digest] {
			t.Fatalf("a body arrived that the log does not name")
		}
	}
}

func read[T any](t fataler, e eventlog.Event) T {
	t.Helper()
	var p T
	if err := e.Decode(&p); err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// rebuild makes the bytes of a request from what the log says before it.
func (l *laws) rebuild(e eventlog.Event, p eventlog.RequestSent) []byte {
	l.t.Helper()
	request, snapshot, err := l.replay.request()
	if p.Ask != "" {
		request, snapshot, err = l.replay.summaryRequest(p.UpTo, p.Ask)
	}
	if err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	provider, err := model.New(l.replay.header.Provider, model.Config{BaseURL: "https://model.example"})
	if err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	prepared, err := provider.Prepare(request)
	if err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	if prepared.Digest() != p.Digest || snapshot != p.SnapshotSeq {
		l.t.Fatalf("event %d: the log does not give the bytes that were sent", e.Seq)
	}
	return prepared.Body()
}

// onPolicy is law 3: nothing wider lives when a policy is applied.
func (l *laws) onPolicy(e eventlog.Event) {
	l.t.Helper()
	doc, err := policy.Decode([]byte(read[eventlog.PolicyApplied](l.t, e).Policy))
	if err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	was := l.policies[l.standing]
	for id, a := range l.asked {
		same := was.Profile() == doc.Policy.Profile() && was.Approval == doc.Policy.Approval && was.Ceiling.Meet(doc.Policy.Ceiling) == was.Ceiling
		if (a.state == "" || a.state == eventlog.DecisionGranted) && !same {
			l.t.Fatalf("I2: event %d changes the policy and request %s stays open", e.Seq, id)
		}
	}
	for id, c := range l.calls {
		bound := doc.Policy.Profile()
		if c.granted && doc.Policy.Approval == policy.ApprovalAsk {
			bound.Mode = max(bound.Mode, doc.Policy.Ceiling.Mode)
		}
		if !c.ended && !c.profile.Within(bound) {
			l.t.Fatalf("I3: event %d applies %s while call %s lives under %s", e.Seq, doc.Policy.Mode, id, c.profile.Mode)
		}
	}
	l.standing, l.policies[e.Seq] = e.Seq, doc.Policy
}

// onStart is law 2: a call runs under the narrower of what stands and what was told.
func (l *laws) onStart(e eventlog.Event) {
	l.t.Helper()
	p := read[eventlog.ToolStart](l.t, e)
	var got policy.Profile
	if err := json.Unmarshal(p.Profile, &got); err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	if l.suppressed {
		l.told = l.standing
	}
	told := l.policies[l.told].Profile()
	want := l.policies[l.standing].Profile().Meet(told)
	if p.Grant != "" {
		want = l.grant(e, p)
	}
	right := got == want
	if l.typed[p.CallID] { // a terminal keeps what it was opened under, which is no wider
		right = got.Within(want)
	}
	if !right || p.PolicySeq != l.standing || p.ToldSeq != l.told {
		l.t.Fatalf("I2: event %d starts %s under %+v (%d, told %d), want %+v (%d, told %d)",
			e.Seq, p.CallID, got, p.PolicySeq, p.ToldSeq, want, l.standing, l.told)
	}
	if _, twice := l.calls[p.CallID]; twice {
		l.t.Fatalf("event %d starts %s a second time", e.Seq, p.CallID)
	}
	l.calls[p.CallID] = lawCall{profile: got, told: told, granted: p.Grant != ""}
}

// onResult is law 4: a call that ran under something else than was told names it.
func (l *laws) onResult(e eventlog.Event) {
	l.t.Helper()
	p := read[eventlog.ToolResult](l.t, e)
	if _, called := l.typed[p.CallID]; !called {
		l.t.Fatalf("event %d is the result of %s, which the log has not called", e.Seq, p.CallID)
	}
	c, started := l.calls[p.CallID]
	if !started {
		return
	}
	if c.ended {
		l.t.Fatalf("event %d: %s has a result already", e.Seq, p.CallID)
	}
	ran := p.Outcome != eventlog.OutcomeUnknown && p.Outcome != eventlog.OutcomeNotStarted
	if ran && c.profile != c.told && !strings.Contains(p.Text, fmt.Sprintf("sandbox mode %s, network %s", c.profile.Mode, c.profile.Network)) {
		l.t.Fatalf("I4: event %d does not name what %s ran under: %q", e.Seq, p.CallID, p.Text)
	}
	c.ended = true
	l.calls[p.CallID] = c
}
