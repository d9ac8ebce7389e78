// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// leased starts an agent with a lease of a minute and a clock that the test moves.
func leased(t *testing.T, model *endpoint, call func(context.Context, wire.Start, func([]byte)) wire.Exited) (*session, *atomic.Int64) {
	t.Helper()
	s := start(t, model, call)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	clock.Store(int64(time.Hour))
	s.options.Boottime = func() time.Duration { return time.Duration(clock.Load()) }
	s.desired.LeaseSeconds = 60
	s.boot()
	s.Heard()
	return s, &clock
}

func (s *session) logged(kind eventlog.Type) []eventlog.Event {
	s.t.Helper()
	return slices.DeleteFunc(s.events(), func(e eventlog.Event) bool { return e.Type != kind })
}

func (s *session) awaitLogged(kind eventlog.Type, n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); len(s.logged(kind)) < n; {
		if time.Now().After(end) {
			s.t.Fatalf("%s was never logged %d times", kind, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The lease ends in the middle of a call: the call has its grace, then it is ended and told
// why; nothing starts and no request leaves until the operator is heard; then the turn goes on
// under the same policy, and the transcript got no snapshot for it.
func TestTheEndOfTheLeaseIsAPause(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("1", "sleep")}}
		}
		return reply{text: "Done."}
	})
	s, clock := leased(t, model, func(ctx context.Context, c wire.Start, _ func([]byte)) wire.Exited {
		started <- c.Call
		<-ctx.Done()
		return wire.Exited{}
	})
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "Sleep.")
	<-started
	clock.Add(int64(61 * time.Second)) // over, and within the grace
	time.Sleep(2 * lookAtLease)
	if n := len(s.logged(eventlog.TypeToolResult)); n != 0 {
		t.Error("a call was ended within its grace")
	}
	clock.Add(int64(leaseGrace))
	s.awaitLogged(eventlog.TypeLeaseExpired, 1)
	results := s.logged(eventlog.TypeToolResult)
	if len(results) != 1 || !strings.Contains(payload[eventlog.ToolResult](t, results[0]).Text, textUnheard) {
		t.Errorf("the call's result does not say why it ended: %+v", results)
	}
	if e := payload[eventlog.LeaseExpired](t, s.logged(eventlog.TypeLeaseExpired)[0]); e.Killed == 0 {
		t.Errorf("the pause counts no process as ended: %+v", e)
	}
	if o := s.Observed(t.Context(), 0); o.Activity.State != wire.Paused || o.Applied == nil || len(o.Unconfirmed) != 0 {
		t.Errorf("state %s, applied %+v, unconfirmed %v: want a pause under the same policy, everything swept", o.Activity.State, o.Applied, o.Unconfirmed)
	}
	if n := len(model.seen()); n != 1 {
		t.Errorf("%d requests, want 1: one left after the lease was over", n)
	}
	policies, snapshots := len(s.logged(eventlog.TypePolicyApplied)), len(s.logged(eventlog.TypeContextSnapshot))
	s.Heard()
	if m := s.answered("m1"); m.Reason != ReasonCompleted {
		t.Errorf("the turn ended with %s", m.Reason)
	}
	if n := len(s.logged(eventlog.TypeLeaseRenewed)); n != 1 {
		t.Errorf("lease/renewed was logged %d times, want once", n)
	}
	if p, c := len(s.logged(eventlog.TypePolicyApplied)), len(s.logged(eventlog.TypeContextSnapshot)); p != policies || c != snapshots {
		t.Errorf("the pause logged %d policies and %d snapshots", p-policies, c-snapshots)
	}
}

// Between the lease's end and its sweep the gate is shut already: a step that is due waits.
func TestNoRequestLeavesOnceTheLeaseIsOver(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("1", "true")}, hold: hold}
		}
		return reply{text: "Done."}
	})
	var calls atomic.Int64
	s, clock := leased(t, model, func(context.Context, wire.Start, func([]byte)) wire.Exited {
		calls.Add(1)
		return wire.Exited{Cause: wire.Finished}
	})
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "Go.")
	for len(model.seen()) == 0 {
		time.Sleep(time.Millisecond)
	}
	clock.Add(int64(time.Minute))
	close(hold) // the answer asks for a call
	s.awaitLogged(eventlog.TypeLeaseExpired, 1)
	if calls.Load() != 0 {
		t.Error("a call started after the lease was over")
	}
	s.Heard()
	s.answered("m1")
	if calls.Load() != 1 {
		t.Errorf("the call ran %d times after the renewal, want once", calls.Load())
	}
}

func TestAnIdleAgentNeedsNoOperator(t *testing.T) {
	s, clock := leased(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "Hi."} }), nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "Hello?")
	clock.Add(int64(time.Hour))
	time.Sleep(2 * lookAtLease)
	if o := s.Observed(t.Context(), 0); o.Activity.State != wire.Idle {
		t.Errorf("state %s, want %s", o.Activity.State, wire.Idle)
	}
	s.Heard()
	s.say("m2", "Still there?")
	if n := len(s.logged(eventlog.TypeLeaseExpired)); n != 0 {
		t.Errorf("lease/expired was logged %d times for an agent that did nothing", n)
	}
}

// A pause outlives the agent: the next boot goes on with lease/renewed once it is heard.
func TestAPauseSurvivesARestart(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	model := newEndpoint(t, func(n int, _ chatRequest) reply { return reply{calls: []chatCall{bash("1", "true")}} })
	s, clock := leased(t, model, func(ctx context.Context, _ wire.Start, _ func([]byte)) wire.Exited {
		<-ctx.Done()
		return wire.Exited{}
	})
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "Go.")
	s.awaitLogged(eventlog.TypeToolStart, 1)
	clock.Add(int64(2 * time.Minute))
	s.awaitLogged(eventlog.TypeLeaseExpired, 1)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	if n := len(s.logged(eventlog.TypeLeaseRenewed)); n != 0 {
		t.Fatal("the lease was renewed by nobody")
	}
	s.Heard()
	s.switchTo(policy.ReadOnly)
	s.awaitLogged(eventlog.TypeLeaseRenewed, 1)
}
