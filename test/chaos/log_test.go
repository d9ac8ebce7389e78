// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
)

// event is a line of the event log, with what is looked at here of any type's data.
type event struct {
	Seq  uint64
	Type string
	Data struct {
		UID, MessageUID, CallID, Digest, Policy, Reason, Outcome, Content string
		Boot, Turn, Step                                                  int
		PolicySeq                                                         uint64
		IsError                                                           bool
		Profile                                                           policy.Profile
		ToolCalls                                                         []struct{ ID string }
		Usage                                                             struct{ Input, CachedInput, Output int64 }
	}
}

// account is what a log says, counted.
type account struct {
	t    *testing.T
	name string

	starts, boots                     int
	received                          map[string]int  // the number, by message
	asked                             map[string]int  // the turn, by message
	ended                             map[int]string  // how, by turn
	final                             map[int]int     // answers without calls, by turn
	answered                          map[string]bool // by turn and step
	called, started, results          map[string]bool // by call
	mayWrite, succeeded               int             // calls
	sent                              map[string]bool // digests of requests
	last                              string          // digest of the newest request
	answeredRequests                  map[string]bool // of them, those that got an answer
	standing                          uint64
	policy                            policy.Policy
	inputTokens, cached, outputTokens int64
}

// agentLog runs a command of the agent's on the log.
func (s *session) agentLog(t *testing.T, command string) string {
	t.Helper()
	got, err := s.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := kube.Kubectl(t.Context(), "-n", namespace, "exec", got.Status.PodName, "-c", "agent", "--", "/usr/local/bin/agent", "log", command, "/log")
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return out
}

// checkLog checks that the log's chain holds and gives every request, that it has each message,
// turn and answer once, that no call ran wider than what stood, and that status and messages
// say what it says.
func (s *session) checkLog(t *testing.T, o *observer) *account {
	t.Helper()
	verified := s.agentLog(t, "verify")
	a := &account{t: t, name: s.name, received: map[string]int{}, asked: map[string]int{}, ended: map[int]string{}, final: map[int]int{},
		answered: map[string]bool{}, called: map[string]bool{}, started: map[string]bool{}, results: map[string]bool{}, sent: map[string]bool{}, answeredRequests: map[string]bool{}}
	lines := bufio.NewScanner(strings.NewReader(s.agentLog(t, "export")))
	lines.Buffer(nil, 32<<20)
	var last event
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("a line of the log: %v", err)
		}
		if e.Type == "" {
			continue // the header of a segment
		}
		if e.Seq != last.Seq+1 {
			t.Errorf("%s: event %d follows on %d", s.name, e.Seq, last.Seq)
		}
		last = e
		a.take(e)
	}
	a.close()
	for uid, name := range s.sent {
		m, turn := o.message(uid), a.asked[uid]
		if a.received[uid] == 0 || turn == 0 || a.ended[turn] != "Completed" || a.final[turn] != 1 {
			t.Errorf("message %s is number %d of the log and was asked in turn %d, which ended %q with %d answers", name, a.received[uid], turn, a.ended[turn], a.final[turn])
		}
		if m.Status.Turn != int64(turn) || m.Status.Sequence != int64(a.received[uid]) {
			t.Errorf("message %s says turn %d, number %d; the log has %d and %d", name, m.Status.Turn, m.Status.Sequence, turn, a.received[uid])
		}
	}
	if len(a.ended) != len(s.sent) {
		t.Errorf("%s has had %d turns for %d messages", s.name, len(a.ended), len(s.sent))
	}
	s.checkMarks(t, a)
	s.checkCounters(t, a, last.Seq, verified)
	return a
}

// take reads an event. What may be there once must not be there twice.
func (a *account) take(e event) {
	d, at := e.Data, fmt.Sprintf("%d/%d", e.Data.Turn, e.Data.Step)
	switch e.Type {
	case "session/start":
		a.starts++
	case "boot":
		if a.boots++; d.Boot != a.boots {
			a.errorf("event %d is boot %d, want %d", e.Seq, d.Boot, a.boots)
		}
	case "policy/applied":
		doc, err := policy.Decode([]byte(d.Policy))
		if err != nil {
			a.errorf("event %d: %v", e.Seq, err)
		}
		a.standing, a.policy = e.Seq, doc.Policy
	case "message/received":
		a.once(e, a.received[d.UID] == 0, "message "+d.UID)
		a.received[d.UID] = len(a.received) + 1
	case "user/message":
		a.once(e, a.asked[d.MessageUID] == 0, "message "+d.MessageUID)
		a.asked[d.MessageUID] = d.Turn
	case "request/sent":
		if d.PolicySeq != a.standing {
			a.errorf("event %d sends a request under policy %d while %d stands", e.Seq, d.PolicySeq, a.standing)
		}
		a.sent[d.Digest], a.last = true, d.Digest
	case "assistant/message":
		a.once(e, !a.answered[at], "the answer to turn/step "+at)
		a.answered[at], a.answeredRequests[a.last] = true, true
		if len(d.ToolCalls) == 0 {
			a.final[d.Turn]++
		}
	case "tool/call":
		a.once(e, !a.called[d.CallID], "call "+d.CallID)
		a.called[d.CallID] = true
	case "tool/start":
		a.once(e, !a.started[d.CallID], "the start of call "+d.CallID)
		a.started[d.CallID] = true
		if d.PolicySeq != a.standing || !d.Profile.Within(a.policy.Profile()) {
			a.errorf("event %d starts a call under policy %d, %v; %d stands, %v", e.Seq, d.PolicySeq, d.Profile, a.standing, a.policy.Profile())
		}
		if d.Profile.Mode > policy.ReadOnly {
			a.mayWrite++
		}
	case "tool/result":
		a.once(e, !a.results[d.CallID], "the result of call "+d.CallID)
		a.results[d.CallID] = true
		if d.Outcome == "" && !d.IsError {
			a.succeeded++
		}
	case "turn/end":
		a.once(e, a.ended[d.Turn] == "", fmt.Sprintf("the end of turn %d", d.Turn))
		a.ended[d.Turn] = d.Reason
	}
	a.inputTokens, a.cached, a.outputTokens = a.inputTokens+d.Usage.Input, a.cached+d.Usage.CachedInput, a.outputTokens+d.Usage.Output
}

func (a *account) close() {
	if a.starts != 1 {
		a.errorf("its log begins %d times", a.starts)
	}
	for call := range a.called {
		if !a.results[call] {
			a.errorf("call %s has no result", call)
		}
	}
}

func (a *account) once(e event, first bool, what string) {
	if !first {
		a.errorf("event %d: %s is there a second time", e.Seq, what)
	}
}

func (a *account) errorf(format string, args ...any) {
	a.t.Helper()
	a.t.Errorf("%s: %s", a.name, fmt.Sprintf(format, args...))
}

// checkMarks compares what commands left in the workspace with what the log says of them: none
// ran twice, and none that is said to have succeeded did not run.
func (s *session) checkMarks(t *testing.T, a *account) {
	t.Helper()
	text, err := marks(s.workspaceOf(t.Context()))
	if err != nil {
		t.Error(err)
	}
	begun, done := strings.Count(text, "begin"), strings.Count(text, "end")
	if begun > a.mayWrite || done > begun || done < a.succeeded {
		t.Errorf("%s: %d commands began and %d ended; the log has %d that could write, and %d that succeeded", s.name, begun, done, a.mayWrite, a.succeeded)
	}
	t.Logf("%s: %d messages, %d boots; of %d commands %d could write, %d began, %d ended, %d are known to have succeeded; %d narrowings held; mode %s at the end",
		s.name, len(s.sent), a.boots, len(a.started), a.mayWrite, begun, done, a.succeeded, s.proofs, s.mode)
}

// checkCounters waits until status says what the log says.
func (s *session) checkCounters(t *testing.T, a *account, last uint64, verified string) {
	t.Helper()
	eventually(t, "status of "+s.name+" says what its log says", func() (bool, string) {
		got, err := s.get(t.Context())
		if err != nil || got.Status.Log == nil || got.Status.Usage == nil {
			return false, fmt.Sprint(err)
		}
		l, u := got.Status.Log, got.Status.Usage
		want := v1alpha1.UsageStatus{InputTokens: a.inputTokens, CachedInputTokens: a.cached, OutputTokens: a.outputTokens, TotalTokens: a.inputTokens + a.cached + a.outputTokens, CachedPercent: u.CachedPercent}
		return uint64(l.LastSeq) == last && strings.Contains(verified, "head "+l.Digest) && *u == want, fmt.Sprintf("%+v %+v; want event %d, %+v, %s", l, u, last, want, verified)
	})
}
