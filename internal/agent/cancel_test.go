// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func (s *session) interrupt(uid, content string) {
	s.t.Helper()
	s.desired.Messages = append(s.desired.Messages, wire.Message{UID: uid, Content: content, Interrupt: true})
	if _, _, err := s.SetDesired(s.t.Context(), s.desired); err != nil {
		s.t.Fatal(err)
	}
}

// A message that interrupts ends the turn that runs, wherever it is, and is answered after
// those that came before it.
func TestAMessageInterruptsTheTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		first  reply
		result string // of the call that was stopped
		calls  int    // that run
	}{
		"in the middle of a stream":   {reply{text: "I beg", hold: make(chan struct{})}, "", 0},
		"in the middle of a call":     {reply{calls: []chatCall{bash("c1", "sleep 1000"), bash("c2", "ls")}}, "(stopped: the turn was cancelled)", 1},
		"while it waits for a repeat": {reply{status: http.StatusServiceUnavailable}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			started := make(chan string, 1)
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				if n == 1 {
					return tc.first
				}
				return reply{text: "to " + r.lastSaid().Content}
			})
			s := start(t, model, untilEnded(started))
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			s.options.Sleep = func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
			s.boot()
			s.switchTo(policy.WorkspaceWrite)
			s.send("m1", "one")
			model.awaitRequest(1)
			for range tc.calls {
				<-started
			}
			s.desired.Messages = append(s.desired.Messages, wire.Message{UID: "m2", Content: "two"})
			s.interrupt("m3", "three")
			if got := s.answered("m1"); got.Reason != ReasonCancelled {
				t.Errorf("the first message is %+v", got)
			}
			if got := s.answered("m2"); got.Reply != "to two" {
				t.Errorf("the second message is %+v: it came before the one that interrupts", got)
			}
			if got := s.answered("m3"); got.Reply != "to three" {
				t.Errorf("the third message is %+v", got)
			}
			requests := model.seen()
			extends(t, requests)
			if tc.result != "" {
				if results := requests[1].Messages; !strings.Contains(results[len(results)-3].Content, tc.result) ||
					!strings.Contains(results[len(results)-2].Content, "not started: the turn was cancelled") {
					t.Errorf("the results are %+v", results)
				}
			}
		})
	}
}

// An interruption that is in the log holds over a crash that comes before the turn's end.
func TestAnInterruptionSurvivesACrash(t *testing.T) {
	h := newHistory(t)
	h.message("hi")
	h.openTurn()
	h.request()
	h.interrupt = true
	h.message("stop")
	f := newFold()
	for _, e := range h.events {
		if err := f.apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if !f.turn.cancelled {
		t.Error("the next boot would go on with the turn")
	}
	h.record(h.f.planTurnEnd(ReasonCancelled, "")...)
	h.openTurn()
	if h.f.turn.cancelled {
		t.Error("the message cancels its own turn")
	}
}

// Each limit ends the turn before the request that would pass it, says which it is, and holds
// no longer when it is raised.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limits   wire.SessionLimits
		messages int // until the limit is met
		want     string
		requests int
	}{
		"steps of a turn": {wire.SessionLimits{MaxStepsPerTurn: 3}, 1, ReasonStepLimit, 3},
		"turns":           {wire.SessionLimits{MaxTurns: 1, MaxStepsPerTurn: 2}, 2, ReasonTurnLimit, 2},
		"tokens":          {wire.SessionLimits{MaxTotalTokens: 30}, 1, ReasonTokenLimit, 3}, // of 12 each
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(_ int, r chatRequest) reply {
				if strings.HasSuffix(r.lastSaid().Content, "end") {
					return reply{text: "ended"}
				}
				return reply{calls: []chatCall{{"c", "none", `{}`}}}
			})
			s := start(t, model, nil)
			s.desired.Config.Limits = tc.limits
			s.switchTo(policy.ReadOnly)
			var got wire.MessageStatus
			for i := range tc.messages {
				got = s.say(strings.Repeat("m", i+1), "go")
			}
			if got.Reason != tc.want || got.Reply == "" || len(model.seen()) != tc.requests {
				t.Errorf("the turn ended with %+v after %d requests", got, len(model.seen()))
			}
			s.desired.Config.Limits = wire.SessionLimits{MaxTurns: 2, MaxStepsPerTurn: 4, MaxTotalTokens: 1000}
			if got := s.say("raised", "end"); got.Reply != "ended" {
				t.Errorf("with higher limits the turn ended with %+v", got)
			}
		})
	}
}

// The session's end finds a turn that an earlier boot left open.
func TestStopFindsAnOpenTurn(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, once(bash("c1", "sleep 1000")))
	s := start(t, model, untilEnded(started))
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "go")
	<-started
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.desired.Stop = true
	s.push(policy.WorkspaceWrite)
	if got := s.answered("m1"); got.Reason != ReasonStopped {
		t.Errorf("the turn ended with %+v", got)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(all[eventlog.SessionEnd](t, s.events(), eventlog.TypeSessionEnd)); n != 1 {
		t.Errorf("the session ended %d times in the log", n)
	}
}

// Where the snapshots are suppressed the model reads none, the header does not speak of them,
// and everything is enforced as ever.
func TestSuppressedRuntimeContext(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("c1", "touch f")}, hold: hold}
		}
		return reply{text: "done"}
	})
	s := start(t, model, echo("ok\n", 0))
	s.desired.Config.RuntimeContext = wire.RuntimeContextSuppressed
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "go")
	model.awaitRequest(1)
	s.switchTo(policy.ReadOnly)
	close(hold)
	s.answered("m1")
	if len(s.ro.Starts()) != 1 || len(s.rw.Starts()) != 0 {
		t.Errorf("tools-ro ran %d calls, tools-rw %d; want 1 and 0", len(s.ro.Starts()), len(s.rw.Starts()))
	}
	last := model.seen()[1]
	if countSnapshots(last) != 0 || strings.Contains(last.Messages[0].Content, "snapshot") {
		t.Errorf("the model reads %+v", last.Messages)
	}
	if got := last.last().Content; got != "ok\n(exit status 0)" {
		t.Errorf("the result is %q", got)
	}
}
