// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// lingering is a shell whose far end somebody else keeps when it has ended, until the test is over: the terminal
// ends later than its call. Ended is called in between.
func lingering(t *testing.T, ended func()) func(context.Context, wire.Start, *os.File) wire.Exited {
	return func(ctx context.Context, c wire.Start, far *os.File) wire.Exited {
		kept, err := unix.Dup(int(far.Fd()))
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = unix.Close(kept) })
		_ = unix.SetNonblock(int(far.Fd()), true)
		defer func() {
			if ctx.Err() != nil {
				ended()
			}
		}()
		return shell(ctx, c, far)
	}
}

// A policy is not applied before the last terminal is over, whoever says first that all has ended.
func TestAPolicyWaitsForTerminalsThatLinger(t *testing.T) {
	for name, to := range map[string]policy.Mode{"a narrowing": policy.ReadOnly, "a widening": policy.DangerFullAccess} {
		t.Run(name, func(t *testing.T) {
			m := newActor(t)
			s := terminals(t, m)
			s.rw.Terminal = lingering(t, func() {})
			s.switchTo(policy.WorkspaceWrite)
			wantText(t, s.does(m, onTerminal("open")), false, "ready")
			if n := s.switchTo(to).Activity.Terminals; n != 0 {
				t.Errorf("%s is applied while %d terminals live", to, n)
			}
		})
	}
}

// A policy is not applied before the results of what it ended are in the log, whoever has confirmed by then.
func TestAPolicyWaitsForResultsThatAreLate(t *testing.T) {
	started := make(chan string, 1)
	s := start(t, newEndpoint(t, once(bash("c1", "sleep 1000"))), func(ctx context.Context, st wire.Start, _ func([]byte)) wire.Exited {
		started <- st.Call
		<-ctx.Done()
		return wire.Exited{OutputBytes: 1} // which never comes, so the agent waits for it
	})
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "run it")
	<-started
	s.switchTo(policy.ReadOnly)
	if all := kinds(s.events()); slices.Index(all, eventlog.TypeToolResult) < 0 {
		t.Errorf("the log has no result, and ends with %v", all[len(all)-3:])
	}
	s.answered("m1")
	s.lawful()
}

// What a supervisor is bound to while it narrows is no wider than what comes.
func TestANarrowingBindsTheSupervisors(t *testing.T) {
	narrows := make(chan wire.Narrow, 8)
	s := start(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} }), nil, func(s *session) {
		s.rw.BeforeNarrowed = func(n wire.Narrow) {
			if n.Epoch.Counter > 1 { // not the one of the boot
				narrows <- n
			}
		}
	})
	s.switchTo(policy.DangerFullAccess)
	for _, to := range []policy.Mode{policy.WorkspaceWrite, policy.ReadOnly} {
		s.switchTo(to)
		if n := <-narrows; n.Bound.Mode != to {
			t.Errorf("going to %s binds the supervisors to %s", to, n.Bound.Mode)
		}
	}
}

// The first policy of a boot waits until every container has said that nothing of an earlier boot lives.
func TestTheFirstPolicyOfABootWaits(t *testing.T) {
	release := make(chan struct{})
	s := start(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} }), nil, func(s *session) {
		s.rw.BeforeNarrowed = func(wire.Narrow) { <-release }
	})
	s.await("both containers are there", func(o wire.Observed) bool { // a hello that comes later is the answer by itself
		return len(o.Containers) == 2 && o.Containers[0].Connected && o.Containers[1].Connected
	})
	s.push(policy.DangerFullAccess)
	quiet()
	if o := s.Observed(t.Context(), 0); o.Applied != nil || !slices.Contains(o.Unconfirmed, wire.ToolsRW) {
		t.Errorf("%+v is applied, %v has not confirmed", o.Applied, o.Unconfirmed)
	}
	close(release)
	s.await("it is applied", func(o wire.Observed) bool { return o.Applied != nil })
}

// A terminal that is asked for while a widening ends the others is opened when the widening is applied, not before.
func TestNoTerminalOpensDuringAWidening(t *testing.T) {
	hold, ending, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := actor{endpoint: newEndpoint(t, func(n int, r chatRequest) reply {
		switch n {
		case 1:
			return reply{calls: []chatCall{onTerminal("open")}}
		case 2:
			return reply{calls: []chatCall{onTerminal("open", "name", "second")}, hold: hold}
		}
		return reply{text: "ok"}
	})}
	s := terminals(t, m)
	s.ro.Terminal = func(ctx context.Context, c wire.Start, far *os.File) wire.Exited {
		e := shell(ctx, c, far)
		if ctx.Err() != nil && c.Call == "1.1.1" {
			close(ending)
			<-release
		}
		return e
	}
	s.switchTo(policy.ReadOnly)
	s.send("m1", "open")
	m.awaitRequest(2)
	s.push(policy.WorkspaceWrite)
	within(t, ending)
	close(hold)
	s.awaitLogged(eventlog.TypeToolCall, 2)
	quiet()
	if n := len(s.logged(eventlog.TypeToolStart)); n != 1 {
		t.Errorf("%d calls have started before the widening is applied", n)
	}
	close(release)
	s.answered("m1")
	wantLaws(t, s, m)
}

// The gate is looked at again when the terminals before a granted call have ended: that takes a while.
func TestAGrantedCallLooksAtTheGateAgain(t *testing.T) {
	m := newActor(t)
	s, clock := leased(t, m.endpoint, echo("", 0))
	s.ro.Terminal = lingering(t, func() { clock.Add(int64(61 * time.Second)) })
	s.applyPolicy(asks)
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	m.calls <- wants("c", "touch f", policy.WorkspaceWrite)
	s.send("more", "go on")
	s.decide(yes(s.pending()))
	s.awaitLogged(eventlog.TypeLeaseExpired, 1)
	if n := len(s.rw.Starts()); n != 0 {
		t.Error("a call started after the lease was over")
	}
	s.Heard()
	s.answered("more")
	if n := len(s.rw.Starts()); n != 1 {
		t.Errorf("the granted call ran %d times", n)
	}
	wantLaws(t, s, m)
}

// What cannot be written down does not happen: no call starts, no terminal is opened, no request leaves and no
// sandbox is widened.
func TestNothingHappensThatCannotBeLogged(t *testing.T) {
	for name, do := range map[string]func(*session) error{
		"a call": func(s *session) error {
			c, err := tool.Decode("bash", []byte(`{"command":"ls"}`))
			if err != nil {
				return err
			}
			_, err = s.pass(s.t.Context(), "1.1.1", c)
			return err
		},
		"a terminal": func(s *session) error {
			c := onTerminal("open")
			w := decodeCalls([]*call{{id: "1.1.1", name: c.name, arguments: c.arguments}})[0]
			_, _, _, err := s.passTerminal(s.t.Context(), w, w.call.Arguments.(*tool.Terminal))
			return err
		},
		"a request": func(s *session) error {
			_, err := s.sendable(s.t.Context())
			return err
		},
		"a request that is ready": func(s *session) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			request, _, err := s.f.request()
			if err != nil {
				return err
			}
			_, err = s.prepareLocked(request, func(p model.Prepared) entry { return s.f.planRequest(p, 0) })
			return err
		},
		"a widening": func(s *session) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.applyLocked(&pushed{doc: policy.Encode(policy.Policy{Mode: policy.DangerFullAccess, Ceiling: policy.Unbounded}), stamp: s.desired.Stamp, workspace: "/workspace"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			defer close(hold)
			endpoint := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok", hold: hold} })
			s := start(t, endpoint, echo("", 0), func(s *session) { s.mayFail = true })
			s.switchTo(policy.WorkspaceWrite)
			s.send("m1", "go")
			endpoint.awaitRequest(1)
			s.mu.Lock()
			err := s.log.Close()
			s.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if err := do(s); err == nil {
				t.Error("it happened although it cannot be logged")
			}
			quiet()
			if n := len(s.rw.Starts()) + len(endpoint.seen()); n != 1 {
				t.Errorf("%d calls and requests were seen, want the request from before", n)
			}
			if widest := s.rw.Widest(); widest.Mode != policy.WorkspaceWrite {
				t.Errorf("the sandbox was widened to %+v", widest)
			}
		})
	}
}

// The gate lets something pass only if nothing at all speaks against it.
func TestTheGate(t *testing.T) {
	for name, shut := range map[string]func(*session){
		"it is shut":                           func(s *session) { s.closed = true },
		"the log cannot be written":            func(s *session) { s.fatal = errStopped },
		"the log is not the one that it was":   func(s *session) { s.lost = &wire.Problem{} },
		"there is no desired state":            func(s *session) { s.config = nil },
		"no policy was applied in this boot":   func(s *session) { s.applied = nil },
		"a key is missing":                     func(s *session) { s.config.Model.KeySecret = "key" },
		"the lease is over, says the clock":    func(s *session) { s.lease.length, s.lease.heard = 1, 0 },
		"the lease was over and is not on yet": func(s *session) { s.lease.expired = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} }), nil)
			s.switchTo(policy.ReadOnly)
			s.mu.Lock()
			defer s.mu.Unlock()
			a := &Agent{o: s.o, f: s.f, config: new(*s.config), target: s.target, applied: s.applied, lease: s.lease, tools: s.tools}
			if !a.openLocked() || !a.settledLocked() {
				t.Fatal("the gate is shut although nothing speaks against it")
			}
			a.target = &pushed{}
			if a.settledLocked() {
				t.Error("a person is asked while another policy is on its way")
			}
			a.target = s.target
			shut(&session{Agent: a})
			if a.openLocked() || a.settledLocked() {
				t.Error("the gate is open")
			}
		})
	}
}

// While a container is away nothing starts and no request leaves, even if it was good enough when it was there.
func TestAContainerThatIsAwayIsWaitedFor(t *testing.T) {
	started, release := make(chan string, 1), make(chan struct{})
	model := newEndpoint(t, once(bash("c1", "sleep 1000")))
	s := start(t, model, func(_ context.Context, st wire.Start, _ func([]byte)) wire.Exited {
		started <- st.Call
		<-release // its supervisor does not come back before it has ended
		return wire.Exited{}
	})
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "run it")
	<-started
	s.rw.Hangup()
	s.awaitLogged(eventlog.TypeToolResult, 1)
	quiet()
	if n := len(model.seen()); n != 1 {
		t.Errorf("%d requests have left, want the one from before", n)
	}
	close(release)
	s.answered("m1")
	s.lawful()
}

// The model reads that its request was withdrawn when it reads why: not while the change is still under way.
func TestAWithdrawalIsToldWithItsPolicy(t *testing.T) {
	model := newEndpoint(t, once(wants("c1", "ls", policy.DangerFullAccess)))
	s := start(t, model, nil)
	draining, release := s.holdNarrowing()
	write := asks
	write.Mode = policy.WorkspaceWrite
	s.applyPolicy(write)
	s.send("m1", "go")
	s.pending()
	s.pushPolicy(asks)
	within(t, draining)
	quiet()
	if n := len(s.logged(eventlog.TypeToolResult)); n != 0 {
		t.Error("the call has its result before the policy is applied")
	}
	close(release)
	s.answered("m1")
	s.lawful()
}
