// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// While a narrowing drains, the log gets no event that lets anything out: no request leaves, no summary is
// asked for and no call starts. When it is applied all three go on, under what was applied.
func TestNoRequestLeavesDuringANarrowing(t *testing.T) {
	for name, window := range map[string]int64{"a request": 0, "a summary": 1000} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(_ int, r chatRequest) reply {
				if asked(r) {
					return reply{text: "All is well.", tokens: 10}
				}
				return reply{text: strings.Repeat("a", 3000), tokens: 850}
			})
			s := start(t, model, nil)
			draining, release := s.holdNarrowing()
			s.switchTo(policy.WorkspaceWrite)
			s.say("m1", "go")
			s.desired.Config.Model.ContextWindow = window
			s.push(policy.ReadOnly)
			within(t, draining)
			s.send("m2", "go on")
			s.await("the turn has begun", func(o wire.Observed) bool { return o.Activity.Turns == 2 })
			quiet()
			if n := len(model.seen()); n != 1 {
				t.Errorf("%d requests have left, want the one from before", n)
			}
			close(release)
			s.answered("m2")
			s.lawful()
		})
	}
}

// A call of an answer that came while a narrowing drains waits for its end, and so does a terminal.
func TestACallWaitsForTheGate(t *testing.T) {
	for name, call := range map[string]chatCall{"a command": bash("c1", "ls"), "a terminal": onTerminal("open")} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				if n == 1 {
					return reply{calls: []chatCall{call}, hold: hold}
				}
				return reply{text: "done"}
			})
			s := start(t, model, echo("f\n", 0))
			draining, release := s.holdNarrowing()
			s.switchTo(policy.WorkspaceWrite)
			s.send("m1", "go")
			model.awaitRequest(1)
			s.push(policy.ReadOnly)
			within(t, draining)
			close(hold)
			s.awaitEvent(eventlog.TypeToolCall)
			quiet()
			if n := len(s.ro.Starts()) + len(s.rw.Starts()); n != 0 || slices.Contains(kinds(s.events()), eventlog.TypeToolStart) {
				t.Errorf("%d calls have started", n)
			}
			close(release)
			s.answered("m1")
			s.lawful()
		})
	}
}

// The gate is shut from the moment in which a narrowing is taken, not only when it is carried out; and it stays
// shut between two narrowings.
func TestTheGateIsShutAtOnce(t *testing.T) {
	s := start(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} }), nil)
	s.switchTo(policy.DangerFullAccess)
	pushedOf := func(m policy.Mode) pushed {
		return pushed{doc: policy.Encode(policy.Policy{Mode: m, Ceiling: policy.Unbounded}), stamp: s.desired.Stamp, workspace: "/workspace"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	applied := s.applied
	s.aimLocked(pushedOf(policy.WorkspaceWrite))
	if s.openLocked() {
		t.Error("the gate is open after a narrowing was taken")
	}
	s.target = applied
	s.reopenLocked()
	if !s.openLocked() {
		t.Fatal("the gate is shut although nothing narrower is wanted")
	}
	narrower := pushedOf(policy.ReadOnly)
	s.target = &narrower
	s.reopenLocked()
	if s.openLocked() {
		t.Error("the gate opens although a narrower policy is wanted")
	}
	s.closed, s.target = true, applied
	s.reopenLocked()
}

// A class that names another model or prompt changes no byte of a header that was sent, until the next start.
func TestAChangedClassWaitsForTheNextStart(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "one")
	s.desired.Config.SystemPrompt = "Be long."
	s.say("m2", "two")
	extends(t, model.seen())
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.switchTo(policy.ReadOnly)
	s.say("m3", "three")
	if got := model.seen()[2].Messages[0].Content; !strings.Contains(got, "Be long.") {
		t.Errorf("after the start the system text is %q", got)
	}
	if headers := all[eventlog.RequestHeader](t, s.lawful(), eventlog.TypeRequestHeader); len(headers) != 2 {
		t.Errorf("the log has %d headers, want 2", len(headers))
	}
}

// A summary that is asked for after the snapshot was summed up states the policy again.
func TestASummaryStatesThePolicy(t *testing.T) {
	s := start(t, newEndpoint(t, func(_ int, r chatRequest) reply {
		if asked(r) {
			return reply{text: "All is well.", tokens: 10}
		}
		return reply{text: strings.Repeat("a", 3000), tokens: 100}
	}), nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "one")
	for range 2 { // the first takes the snapshot away, and nothing asks for a request in between
		s.mu.Lock()
		upTo, _ := s.f.history.Older(0)
		s.mu.Unlock()
		if err := s.summarize(t.Context(), upTo, eventlog.CauseWindow); err != nil {
			t.Fatal(err)
		}
	}
	s.lawful()
}

// holdNarrowing keeps tools-rw from confirming narrowings until release is closed, that of the boot aside. Draining
// is closed when one waits.
func (s *session) holdNarrowing() (draining, release chan struct{}) {
	draining, release = make(chan struct{}), make(chan struct{})
	first := true
	s.rw.BeforeNarrowed = func(n wire.Narrow) {
		if n.Epoch.Counter <= 1 {
			return
		}
		if first {
			first = false
			close(draining)
		}
		<-release
	}
	return draining, release
}

// within waits for a channel to be closed, or for as long as anything may take.
func within(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("what is waited for does not happen")
	}
}

// awaitEvent waits until the log has an event of a type.
func (s *session) awaitEvent(kind eventlog.Type) {
	s.t.Helper()
	for end := time.Now().Add(patience); !slices.Contains(kinds(s.events()), kind); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("no %s is logged", kind)
		}
	}
}

// quiet gives whatever could go on the occasion to do so. That nothing does cannot be waited for; too short a
// time makes the test pass where it should not, and never the other way round.
func quiet() { time.Sleep(150 * time.Millisecond) }
