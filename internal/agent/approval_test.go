// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// asks is the policy read-only under which a person may be asked for anything.
var asks = policy.Policy{Approval: policy.ApprovalAsk, Ceiling: policy.Unbounded}

func (s *session) pushPolicy(p policy.Policy) (wire.Observed, bool) {
	s.t.Helper()
	s.desired.Policy = string(policy.Encode(p).Bytes)
	s.desired.Stamp.SessionGeneration++
	o, applied, err := s.SetDesired(s.t.Context(), s.desired)
	if err != nil {
		s.t.Fatal(err)
	}
	return o, applied
}

func (s *session) applyPolicy(p policy.Policy) {
	s.t.Helper()
	s.pushPolicy(p)
	s.await("the policy is applied", func(o wire.Observed) bool { return o.Applied != nil && o.Applied.Stamp == s.desired.Stamp })
}

// pending waits until a call waits for a person.
func (s *session) pending() wire.Approval {
	s.t.Helper()
	o := s.await("a call waits for a person", func(o wire.Observed) bool { return len(o.Approvals) > 0 })
	if len(o.Approvals) != 1 || o.Activity.State != wire.WaitingForApproval {
		s.t.Errorf("%d calls wait in the state %s", len(o.Approvals), o.Activity.State)
	}
	return o.Approvals[0]
}

func (s *session) decide(d ...wire.Decision) {
	s.t.Helper()
	s.desired.Decisions = append(s.desired.Decisions, d...)
	if n := len(s.desired.Decisions); n > wire.MaxApprovals {
		s.desired.Decisions = s.desired.Decisions[n-wire.MaxApprovals:]
	}
	if _, _, err := s.SetDesired(s.t.Context(), s.desired); err != nil {
		s.t.Fatal(err)
	}
}

func yes(a wire.Approval) wire.Decision {
	return wire.Decision{CallID: a.CallID, Digest: a.Digest, Decision: wire.Approved, By: "alice"}
}

// wants is a command with a wish.
func wants(id, command string, m policy.Mode) chatCall {
	b, _ := json.Marshal(map[string]string{"command": command, "sandbox_permissions": m.String(), "justification": "to \u202efix it"})
	return chatCall{id, "bash", string(b)}
}

// needsWrite fails as the kernel lets it fail under read-only, and works under every other mode.
func needsWrite(_ context.Context, st wire.Start, write func([]byte)) wire.Exited {
	if st.Profile.Mode == policy.ReadOnly {
		write([]byte("touch: f: Read-only file system\n"))
		return wire.Exited{Cause: wire.Finished, Status: 1}
	}
	return wire.Exited{Cause: wire.Finished}
}

// tries makes a call, and makes it once more with a wish where the result says so.
func tries(_ int, r chatRequest) reply {
	switch last := r.lastSaid(); {
	case last.Role != "tool":
		return reply{calls: []chatCall{bash("c1", "touch f")}}
	case strings.Contains(last.Content, "make this exact call once more"):
		return reply{calls: []chatCall{wants("c2", "touch f", policy.WorkspaceWrite)}}
	}
	return reply{text: "done"}
}

// results are the results that the newest request carried, in order.
func (e *endpoint) results() []string {
	var all []string
	requests := e.seen()
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role == "tool" {
			all = append(all, m.Content)
		}
	}
	return all
}

// clock is a clock that a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time           { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration)  { c.ahead.Add(int64(d)) }
func withClock(c *clock) func(s *session) { return func(s *session) { s.options.Now = c.now } }

// The whole way: an ordinary try, a denial that says how to ask, one request that a person sees
// whole, one start under what was granted, and after it nothing wider than before.
func TestACallIsLetRunOnce(t *testing.T) {
	model := newEndpoint(t, tries)
	s := start(t, model, needsWrite)
	s.applyPolicy(asks)
	s.send("m1", "go")
	got := s.pending()
	want := wire.Approval{
		CallID: "1.2.1", Seq: got.Seq, PolicySeq: got.PolicySeq, Tool: "bash", Mode: policy.WorkspaceWrite, Digest: got.Digest, ExpiresAt: got.ExpiresAt,
		Preview: "run with bash, for 2m0s at most, in the directory\n| /workspace\nthe command\n| touch f\n" +
			"The contents of files that this reads or runs are not shown here.\nTerminals that are open now are ended before it starts.\n",
		Justification: "to ⟨U+202E⟩fix it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a person sees (-want +got):\n%s", diff)
	}
	c, err := tool.Decode("bash", []byte(`{"command":"touch f"}`))
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := c.RequestDigest("/workspace", policy.WorkspaceWrite, testUID, "1.2.1"); err != nil || digest != got.Digest {
		t.Errorf("the digest is %s, want %s (%v)", got.Digest, digest, err)
	}
	s.decide(yes(got))
	if got := s.answered("m1"); got.Reply != "done" {
		t.Errorf("the message is %+v", got)
	}
	if o := s.Observed(t.Context(), 0); len(o.Approvals) != 0 || o.Activity.State != wire.Idle {
		t.Errorf("afterwards %+v waits in the state %s", o.Approvals, o.Activity.State)
	}
	starts := s.rw.Starts()
	if len(starts) != 1 || !starts[0].Granted || starts[0].Call != "1.2.1" || starts[0].Arguments != `{"command":"touch f"}` || len(s.ro.Starts()) != 1 {
		t.Errorf("tools-rw ran %+v", starts)
	}
	wantResults := []string{
		"touch: f: Read-only file system\n(exit status 1; sandbox mode read-only, network none)\n" +
			"A guess, from \"Read-only file system\" in the output: the sandbox refused it.\n" +
			guidance([]policy.Mode{policy.WorkspaceWrite, policy.DangerFullAccess}),
		"(exit status 0)\nThis call ran once under sandbox mode workspace-write, network none, as alice allowed. Nothing else does: read-only stands.",
	}
	if diff := cmp.Diff(wantResults, model.results()); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	extends(t, model.seen())
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	events := s.events()
	i := slices.IndexFunc(events, func(e eventlog.Event) bool { return e.Type == eventlog.TypeApprovalRequested })
	if diff := cmp.Diff([]eventlog.Type{"approval/requested", "approval/decided", "grant/used", "tool/start", "tool/result"}, kinds(events[i:i+5])); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	checkLaws(t, "/workspace", events, nil)
}

// Whatever ends a request other than a yes: nothing starts, and the model is told why.
func TestARequestThatComesToNoStart(t *testing.T) {
	wider, narrower, never := asks, asks, asks
	wider.Mode = policy.WorkspaceWrite
	narrower.Ceiling.Mode = policy.WorkspaceWrite
	never.Approval = policy.ApprovalNever
	open := asks
	open.Network = policy.NetworkOpen
	decision := func(a wire.Approval, answer wire.Answer) wire.Decision {
		return wire.Decision{CallID: a.CallID, Digest: a.Digest, Decision: answer, By: "bob", Reason: "not\non my watch"}
	}
	change := func(p policy.Policy) func(*session, *clock, wire.Approval) {
		return func(s *session, _ *clock, a wire.Approval) {
			if _, applied := s.pushPolicy(p); !applied {
				s.t.Error("the change of policy waited for a person")
			}
			s.decide(yes(a)) // too late
		}
	}
	for name, tc := range map[string]struct {
		end    func(*session, *clock, wire.Approval)
		result string
		reason string // of the turn's end
	}{
		"a no": {func(s *session, _ *clock, a wire.Approval) { s.decide(decision(a, wire.Denied), yes(a)) },
			"denied: bob decided against it: not\non my watch\nThe call did not run. This is final: do not ask for the same again.", ReasonCompleted},
		"silence": {func(s *session, c *clock, _ wire.Approval) { c.forward(2 * time.Minute) },
			"denied: nobody let it run in time. The call did not run. This is final: do not ask for the same again in this turn.", ReasonCompleted},
		"a yes that is late": {func(s *session, c *clock, a wire.Approval) { c.forward(2 * time.Minute); s.decide(yes(a)) },
			"denied: nobody let it run in time. The call did not run. This is final: do not ask for the same again in this turn.", ReasonCompleted},
		"a wider mode":    {change(wider), "not run: the request was withdrawn, because the policy of the session changed.", ReasonCompleted},
		"another network": {change(open), "not run: the request was withdrawn, because the policy of the session changed.", ReasonCompleted},
		"a lower ceiling": {change(narrower), "not run: the request was withdrawn, because the policy of the session changed.", ReasonCompleted},
		"never":           {change(never), "not run: the request was withdrawn, because the policy of the session changed.", ReasonCompleted},
		"a change in the same breath": {func(s *session, _ *clock, a wire.Approval) {
			s.desired.Decisions = []wire.Decision{yes(a)}
			s.pushPolicy(wider)
		}, "not run: the request was withdrawn, because the policy of the session changed.", ReasonCompleted},
		"an interruption": {func(s *session, _ *clock, _ wire.Approval) { s.interrupt("m2", "stop and go") },
			"not run: the turn was cancelled.", ReasonCancelled},
		"an interruption with a yes": {func(s *session, _ *clock, a wire.Approval) {
			s.desired.Decisions = []wire.Decision{yes(a)}
			s.interrupt("m2", "stop and go")
		}, "not run: the turn was cancelled.", ReasonCancelled},
		"the session's end": {func(s *session, _ *clock, _ wire.Approval) {
			s.desired.Stop = true
			s.decide()
		}, "", ReasonStopped},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				if n == 1 {
					return reply{calls: []chatCall{wants("c1", "touch f", policy.DangerFullAccess)}}
				}
				return reply{text: "done"}
			})
			c := &clock{}
			s := start(t, model, needsWrite, withClock(c))
			s.desired.Config.ApprovalTimeoutSeconds = 60
			s.applyPolicy(asks)
			s.send("m1", "go")
			tc.end(s, c, s.pending())
			if got := s.answered("m1"); got.Reason != tc.reason {
				t.Errorf("the message is %+v", got)
			}
			if tc.reason == ReasonCancelled {
				s.answered("m2")
			}
			if n := len(s.ro.Starts()) + len(s.rw.Starts()); n != 0 {
				t.Errorf("%d calls ran", n)
			}
			if got := model.results(); tc.result != "" && (len(got) != 1 || got[0] != tc.result) {
				t.Errorf("results %q, want %q", got, tc.result)
			}
			if o := s.Observed(t.Context(), 0); len(o.Approvals) != 0 {
				t.Errorf("%+v still waits", o.Approvals)
			}
			if requests := model.seen(); strings.Contains(tc.result, "the policy of the session changed") && name != "a lower ceiling" && !policy.IsSnapshot(requests[len(requests)-1].last().Content) {
				t.Errorf("the model reads of a change without the snapshot that states it")
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			checkLaws(t, "/workspace", s.events(), nil)
			for _, e := range s.events() {
				if e.Type == eventlog.TypeApprovalDecided && name == "a yes that is late" && payload[eventlog.ApprovalDecided](t, e).Decision != eventlog.DecisionExpired {
					t.Errorf("the log has %s", e.Data)
				}
				if e.Type == eventlog.TypeApprovalDecided && payload[eventlog.ApprovalDecided](t, e).Decision == eventlog.DecisionGranted && name != "an interruption with a yes" {
					t.Errorf("a grant is in the log: %s", e.Data)
				}
			}
		})
	}
}

// A grant holds for its own call, for what was shown, in its time, and within what a person can give
// when it is used, even if nobody has withdrawn it.
func TestAGrantHoldsForNothingElse(t *testing.T) {
	h := newHistory(t)
	h.asking()
	r := h.f.asked
	if _, ok := h.f.grantFor(r.CallID, r.Digest, h.now); ok {
		t.Error("a request that nobody has decided on is a grant")
	}
	h.record(h.f.planDecision(wire.Decision{CallID: r.CallID, Digest: r.Digest, Decision: wire.Approved}, h.now)...)
	if p, ok := h.f.grantFor(r.CallID, r.Digest, h.now); !ok || p.Mode != policy.WorkspaceWrite {
		t.Fatalf("the grant gives %+v, %v", p, ok)
	}
	_, other := h.f.grantFor("1.1.2", r.Digest, h.now)
	_, changed := h.f.grantFor(r.CallID, "another", h.now)
	_, late := h.f.grantFor(r.CallID, r.Digest, r.ExpiresAt)
	h.record(h.f.planPolicy(h.pushed(policy.Policy{Approval: policy.ApprovalAsk, Ceiling: policy.Ceiling{Approval: policy.ApprovalAsk}}), workspace, false, 1, 0)[1:]...)
	_, above := h.f.grantFor(r.CallID, r.Digest, h.now)
	if other || changed || late || above {
		t.Errorf("it holds for another call: %v, for other arguments: %v, when it is late: %v, above the ceiling: %v", other, changed, late, above)
	}
}

// A decision for anything but the request that is open, whole, changes nothing; the first that is
// for it counts, and a second does not make the call run again.
func TestDecisionsThatChangeNothing(t *testing.T) {
	model := newEndpoint(t, tries)
	s := start(t, model, needsWrite)
	s.applyPolicy(asks)
	early := wire.Decision{CallID: "1.2.1", Digest: strings.Repeat("0", 64), Decision: wire.Approved}
	s.decide(early)
	s.send("m1", "go")
	a := s.pending()
	other := yes(a)
	other.CallID = "1.1.1"
	s.decide(early, other)
	if got := s.pending(); got != a {
		t.Errorf("%+v waits, want what waited before", got)
	}
	s.decide(yes(a), wire.Decision{CallID: a.CallID, Digest: a.Digest, Decision: wire.Denied}, yes(a))
	s.answered("m1")
	s.decide(yes(a))
	s.send("m2", "again")
	again := s.pending()
	s.decide(yes(a), wire.Decision{CallID: again.CallID, Digest: again.Digest, Decision: wire.Denied})
	s.answered("m2")
	if n := len(s.rw.Starts()); n != 1 {
		t.Errorf("%d calls ran with one grant", n)
	}
}

func TestDecisionsThatAreRefused(t *testing.T) {
	s := start(t, newEndpoint(t, tries), needsWrite)
	s.applyPolicy(asks)
	for want, d := range map[string][]wire.Decision{
		"callID or digest is empty":   {{Decision: wire.Approved}},
		`"Perhaps" is neither`:        {{CallID: "1", Digest: "d", Decision: "Perhaps"}},
		"decisions: 17 are more than": slices.Repeat([]wire.Decision{{CallID: "1", Digest: "d", Decision: wire.Denied}}, 17),
	} {
		s.desired.Decisions = d
		if _, _, err := s.SetDesired(t.Context(), s.desired); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetDesired() = %v, want %q", err, want)
		}
	}
}
