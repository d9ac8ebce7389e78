// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/linkserver"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Wrong calls are results, and nothing of them reaches a supervisor.
func TestWrongCallsAreResults(t *testing.T) {
	for name, tc := range map[string]struct {
		call   chatCall
		finish string
		want   string
	}{
		"unknown tool":       {chatCall{"c1", "rm", `{}`}, "", "there is no tool named"},
		"unknown argument":   {chatCall{"c1", "bash", `{"command":"ls","sudo":true}`}, "", "sudo"},
		"no JSON":            {chatCall{"c1", "bash", `{"command":`}, "", "not complete JSON"},
		"cut at the limit":   {bash("c1", "ls"), "length", "not executed"},
		"forged snapshot":    {chatCall{"c1", policy.SnapshotTag, `{}`}, "", "(quoted)"},
		"the mode by itself": {chatCall{"c1", "bash", `{"command":"ls","sandbox":"danger-full-access"}`}, "", "sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(_ int, r chatRequest) reply {
				if r.lastSaid().Role == "tool" {
					return reply{text: "I see"}
				}
				return reply{calls: []chatCall{tc.call}, finish: tc.finish}
			})
			s := start(t, model, echo("", 0))
			s.switchTo(policy.ReadOnly)
			if got := s.say("m1", "go"); got.Reason != ReasonCompleted || got.Reply != "I see" {
				t.Errorf("the turn ended with %+v", got)
			}
			if got := model.seen()[1].last().Content; !strings.Contains(got, tc.want) {
				t.Errorf("the result is %q, want it to say %q", got, tc.want)
			}
			if n := len(s.ro.Starts()) + len(s.rw.Starts()); n != 0 {
				t.Errorf("%d calls were started", n)
			}
		})
	}
}

// A model that fails ends the turn, says why, and is forgotten with the next answer.
func TestAModelThatFailsEndsTheTurn(t *testing.T) {
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		switch n {
		case 1, 2, 3, 4, 5:
			return reply{status: http.StatusInternalServerError}
		case 6:
			return reply{status: http.StatusUnauthorized}
		}
		return reply{text: "back"}
	})
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	if got := s.say("m1", "one"); got.Reason != ReasonModelFailed || got.Reply == "" {
		t.Errorf("the turn ended with %+v", got)
	}
	if got := s.Observed(t.Context(), 0).Problems; len(got) != 1 || got[0].Reason != wire.ModelUnavailable {
		t.Errorf("problems: %+v", got)
	}
	s.say("m2", "two")
	if got := s.Observed(t.Context(), 0).Problems; len(got) != 1 || got[0].Reason != wire.ModelKeyMissing || !strings.Contains(got[0].Message, "Secret") {
		t.Errorf("problems: %+v", got)
	}
	if got := s.say("m3", "three"); got.Reply != "back" {
		t.Errorf("the turn ended with %+v", got)
	}
	if got := s.Observed(t.Context(), 0).Problems; got != nil {
		t.Errorf("problems: %+v", got)
	}
	extends(t, model.seen())
}

// A message is delivered once, however often it is pushed, also over a restart.
func TestAMessageIsDeliveredOnce(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.desired.Config.Prompt = "prompt"
	s.switchTo(policy.ReadOnly)
	s.answered("")
	s.say("m1", "hello")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.switchTo(policy.ReadOnly)
	got := s.say("m2", "again")
	if got.Sequence != 3 || got.Turn != 3 {
		t.Errorf("the third message has %+v", got)
	}
	requests := model.seen()
	if len(requests) != 3 {
		t.Errorf("%d requests, want one a message", len(requests))
	}
	extends(t, requests)
}

// A refused push changes nothing and says why.
func TestRefusedPushes(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	s.switchTo(policy.ReadOnly)
	wide := string(policy.Encode(policy.Policy{Mode: policy.DangerFullAccess, Ceiling: policy.Unbounded}).Bytes)
	for name, tc := range map[string]struct {
		change func(*wire.Desired)
		want   int
	}{
		"another session":     {func(d *wire.Desired) { d.SessionUID = "x" }, http.StatusMisdirectedRequest},
		"another incarnation": {func(d *wire.Desired) { d.Incarnation = "x" }, http.StatusMisdirectedRequest},
		"another wire":        {func(d *wire.Desired) { d.Wire = 99 }, http.StatusMisdirectedRequest},
		"an unknown mode":     {func(d *wire.Desired) { d.Policy = strings.Replace(d.Policy, "read-only", "yolo", 1) }, http.StatusBadRequest},
		"no policy":           {func(d *wire.Desired) { d.Policy = "" }, http.StatusBadRequest},
		"no model":            {func(d *wire.Desired) { d.Config.Model.Name = "" }, http.StatusBadRequest},
		"an empty message":    {func(d *wire.Desired) { d.Messages = []wire.Message{{UID: "u"}} }, http.StatusBadRequest},
		"going back and wider": {func(d *wire.Desired) {
			d.Stamp.SessionGeneration--
			d.Policy = wide
		}, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.desired
			tc.change(&d)
			before := s.Observed(t.Context(), 0)
			_, _, err := s.SetDesired(t.Context(), d)
			refused, ok := errors.AsType[*linkserver.StatusError](err)
			if !ok || refused.Status != tc.want || refused.Refusal.Error == "" {
				t.Fatalf("SetDesired() = %+v, want status %d", err, tc.want)
			}
			if tc.want == http.StatusConflict && (refused.Stamp == nil || *refused.Stamp != s.desired.Stamp) {
				t.Errorf("the refusal names the stamp %+v", refused.Stamp)
			}
			if diff := cmp.Diff(before, s.Observed(t.Context(), 0)); diff != "" {
				t.Errorf("it changed something:\n%s", diff)
			}
		})
	}
	d := s.desired
	inForce := d.Stamp
	d.Stamp.SessionGeneration--
	d.Policy, d.Replaces = wide, &inForce
	if _, applied, err := s.SetDesired(t.Context(), d); err != nil || !applied {
		t.Errorf("a push that names the stamp that it replaces: %v, %v", applied, err)
	}
}

// An agent that ends in the middle of a call: it is marked, and the next boot goes on with the turn.
func TestARestartInTheMiddleOfACall(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("c1", "sleep 1000"), bash("c2", "ls")}}
		}
		return reply{text: "ok"}
	})
	s := start(t, model, untilEnded(started))
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "go")
	<-started
	if err := s.stop(); err != nil { // SIGTERM: the call is stopped and everything is closed in order
		t.Fatal(err)
	}
	s.boot()
	s.desired.Stamp.SessionGeneration--
	s.switchTo(policy.WorkspaceWrite)
	if got := s.answered("m1"); got.Reason != ReasonCompleted || got.Turn != 1 || got.Reply != "ok" {
		t.Errorf("the first message is %+v", got)
	}
	if got := s.say("m2", "go on"); got.Reply != "ok" {
		t.Errorf("the next message is %+v", got)
	}
	extends(t, model.seen())
	if got := model.seen()[1].Messages; !strings.Contains(got[len(got)-2].Content, "stopped: the agent is being restarted") || !strings.Contains(got[len(got)-1].Content, "not started: the agent is being restarted") {
		t.Errorf("the next request carries %+v", got)
	}
}

// Status knows a log that is not here: no turn runs, and it is said which trouble it is.
func TestALogThatStatusDoesNotKnow(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.desired.LogHead = wire.LogHead{Seq: 400, Digest: "d"}
	o, _ := s.push(policy.ReadOnly)
	if len(o.Problems) != 1 || o.Problems[0].Reason != wire.StateLost || o.Applied != nil || o.Activity.State != wire.Paused {
		t.Errorf("an empty log: %+v", o)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if events := s.events(); len(events) != 0 {
		t.Errorf("it was begun anew: %v", kinds(events))
	}

	s = start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	head := s.Observed(t.Context(), 0).Log
	for name, tc := range map[string]struct {
		head wire.LogHead
		want []wire.ProblemReason
	}{
		"the same":      {head, nil},
		"a longer one":  {wire.LogHead{Seq: head.Seq + 5, Digest: "d"}, []wire.ProblemReason{wire.LogRolledBack}},
		"a changed one": {wire.LogHead{Seq: head.Seq, Digest: strings.Repeat("0", 64)}, []wire.ProblemReason{wire.LogRolledBack}},
	} {
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s.boot()
		s.desired.LogHead = tc.head
		s.push(policy.ReadOnly)
		var got []wire.ProblemReason
		for _, p := range s.Observed(t.Context(), 0).Problems {
			got = append(got, p.Reason)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", name, diff)
		}
	}
}

// A node that cannot enforce runs nothing and says so.
func TestWithoutEnforcementNothingRuns(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.rw.Level = wire.LevelNone
	s.boot()
	s.push(policy.ReadOnly)
	s.send("m1", "go")
	o := s.await("the problem is known", func(o wire.Observed) bool { return len(o.Problems) == 1 })
	if o.Problems[0].Reason != wire.ProbeFailed || o.Activity.State != wire.Paused || len(model.seen()) != 0 {
		t.Errorf("observed %+v after %d requests", o, len(model.seen()))
	}
}

// Stop ends the turn and the log; nothing is answered afterwards.
func TestStopEndsTheSession(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, once(bash("c1", "sleep 1000")))
	s := start(t, model, untilEnded(started))
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "go")
	<-started
	s.desired.Stop = true
	s.send("m2", "too late")
	if got := s.answered("m1"); got.Reason != ReasonStopped {
		t.Errorf("the turn ended with %+v", got)
	}
	s.await("settled", func(o wire.Observed) bool { return o.Settled && o.Activity.State == wire.Idle })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if events := s.events(); events[len(events)-1].Type != eventlog.TypeSessionEnd {
		t.Errorf("the log ends with %s", events[len(events)-1].Type)
	}
}

// Suspend stops what runs and leaves the turn open: the result of the call is known and
// logged, nothing starts any more, and the next boot goes on.
func TestSuspendLeavesTheTurnOpen(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, once(bash("c1", "sleep 1000")))
	s := start(t, model, untilEnded(started))
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "go")
	<-started
	s.desired.Suspend = true
	s.push(policy.WorkspaceWrite)
	s.await("settled", func(o wire.Observed) bool { return o.Settled })
	results := all[eventlog.ToolResult](t, s.events(), eventlog.TypeToolResult)
	if len(results) != 1 || !strings.Contains(results[0].Text, "suspended") {
		t.Errorf("the results are %+v", results)
	}
	if n, requests := len(all[eventlog.TurnEnd](t, s.events(), eventlog.TypeTurnEnd)), len(model.seen()); n != 0 || requests != 1 {
		t.Errorf("%d turns ended, %d requests were made", n, requests)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.desired.Suspend = false
	s.boot()
	s.push(policy.WorkspaceWrite)
	if got := s.answered("m1"); got.Reason != ReasonCompleted {
		t.Errorf("the turn ended with %+v", got)
	}
	if got := s.await("one boot", func(wire.Observed) bool { return true }); got.Settled {
		t.Error("a boot that nobody has asked to rest is settled")
	}
	if again := all[eventlog.ToolResult](t, s.events(), eventlog.TypeToolResult); len(again) != 1 {
		t.Errorf("the call has %d results", len(again))
	}
}
