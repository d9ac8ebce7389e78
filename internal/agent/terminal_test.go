// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// shell is a command in a terminal: it repeats each line, and "exit" ends it with status 3.
func shell(ctx context.Context, _ wire.Start, far *os.File) wire.Exited {
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	fmt.Fprintln(far, "ready")
	lines := bufio.NewScanner(far)
	for lines.Scan() {
		if lines.Text() == "exit" {
			return wire.Exited{Cause: wire.Finished, Status: 3}
		}
		fmt.Fprintln(far, "heard:"+lines.Text())
	}
	return wire.Exited{Cause: wire.Finished, Signal: "SIGHUP"}
}

// terminal is a call of the tool; it waits until there is something to read, not for long then.
func onTerminal(action string, more ...string) chatCall {
	args := map[string]any{"action": action, "wait_millis": 20000, "idle_millis": 50}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i]] = more[i+1]
	}
	b, _ := json.Marshal(args)
	return chatCall{"c", "terminal", string(b)}
}

// actor is a model that makes one call for each message that it gets, and then says "ok".
type actor struct {
	*endpoint
	calls chan chatCall
}

func newActor(t *testing.T) actor {
	a := actor{calls: make(chan chatCall, 1)}
	a.endpoint = newEndpoint(t, func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "ok"}
		}
		return reply{calls: []chatCall{<-a.calls}}
	})
	return a
}

// terminals starts an agent whose terminals run a shell.
func terminals(t *testing.T, m actor, change ...func(*session)) *session {
	t.Helper()
	return start(t, m.endpoint, echo("", 0), append(change, func(s *session) { s.ro.Terminal, s.rw.Terminal = shell, shell })...)
}

// does has the model make one call and returns its result.
func (s *session) does(m actor, c chatCall) eventlog.ToolResult {
	s.t.Helper()
	m.calls <- c
	s.say(fmt.Sprintf("m%d", len(s.desired.Messages)+1), "go on")
	results := s.logged(eventlog.TypeToolResult)
	return payload[eventlog.ToolResult](s.t, results[len(results)-1])
}

func wantText(t *testing.T, r eventlog.ToolResult, isError bool, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(r.Text, part) {
			t.Errorf("%q is not in %q", part, r.Text)
		}
	}
	if r.IsError != isError {
		t.Errorf("an error is %v, want %v: %q", r.IsError, isError, r.Text)
	}
}

func wantLaws(t *testing.T, s *session, m actor) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	checkLaws(t, "/workspace", s.events(), nil)
}

// A terminal stays between calls and turns, tells what was written, and its end is told once.
func TestATerminalStaysBetweenCalls(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.switchTo(policy.WorkspaceWrite)
	wantText(t, s.does(m, onTerminal("send", "input", "x\n")), true, "There is no terminal main")
	wantText(t, s.does(m, onTerminal("open", "command", "shell")), false, "ready\n", "(the terminal main is open)")
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 1 {
		t.Errorf("%d terminals are observed, want 1", n)
	}
	wantText(t, s.does(m, onTerminal("open")), true, "is open already")
	wantText(t, s.does(m, onTerminal("send", "input", "hello\n")), false, "heard:hello\n")
	r := s.does(m, onTerminal("send", "input", "again\n"))
	wantText(t, r, false, "heard:again\n")
	if strings.Contains(r.Text, "hello") {
		t.Errorf("what was read comes again: %q", r.Text)
	}
	wantText(t, s.does(m, onTerminal("send", "input", "exit\n")), true, "has ended: exit status 3")
	wantText(t, s.does(m, onTerminal("read")), true, "There is no terminal main")
	wantText(t, s.does(m, onTerminal("open")), false, "ready\n")
	wantText(t, s.does(m, onTerminal("close")), false, "(the terminal main is closed)")
	wantText(t, s.does(m, onTerminal("read")), true, "There is no terminal main")
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 0 {
		t.Errorf("%d terminals are observed, want none", n)
	}
	wantLaws(t, s, m)
}

// A command that ends between two calls: the next one tells its last words and its status.
func TestAnEndBetweenCallsIsToldByTheNext(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.rw.Terminal = func(ctx context.Context, c wire.Start, far *os.File) wire.Exited {
		if strings.Contains(c.Arguments, "brief") {
			time.Sleep(200 * time.Millisecond)
			fmt.Fprintln(far, "last words")
			return wire.Exited{Cause: wire.Finished, Status: 9}
		}
		return shell(ctx, c, far)
	}
	s.switchTo(policy.WorkspaceWrite)
	brief := chatCall{"c", "terminal", `{"action":"open","command":"brief","wait_millis":1}`}
	wantText(t, s.does(m, brief), false, "is open)")
	s.await("the terminal has ended", func(o wire.Observed) bool { return o.Activity.Terminals == 0 })
	wantText(t, s.does(m, onTerminal("send", "input", "x\n")), true, "last words\n", "exit status 9")
	wantText(t, s.does(m, brief), false, "is open)")
	s.await("the terminal has ended", func(o wire.Observed) bool { return o.Activity.Terminals == 0 })
	wantText(t, s.does(m, onTerminal("open")), false, "Of the earlier terminal of that name", "exit status 9", "ready")
	wantLaws(t, s, m)
}

// Every change of mode or network ends what is open, whichever way it goes; one of the approval
// policy ends nothing.
func TestATerminalEndsWithThePolicy(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.switchTo(policy.WorkspaceWrite)
	wantText(t, s.does(m, onTerminal("open")), false, "ready")

	s.desired.Policy = string(policy.Encode(policy.Policy{Mode: policy.WorkspaceWrite, Ceiling: policy.Ceiling{Mode: policy.WorkspaceWrite}}).Bytes)
	s.desired.Stamp.SessionGeneration++
	if _, _, err := s.SetDesired(t.Context(), s.desired); err != nil {
		t.Fatal(err)
	}
	s.await("the ceiling is lower", func(o wire.Observed) bool { return o.Applied.Stamp == s.desired.Stamp })
	wantText(t, s.does(m, onTerminal("send", "input", "still\n")), false, "heard:still")

	s.switchTo(policy.ReadOnly)
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 0 {
		t.Errorf("%d terminals are open after a narrowing", n)
	}
	wantText(t, s.does(m, onTerminal("send", "input", "x\n")), true, "The terminal main is gone: the sandbox was narrowed")
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	s.switchTo(policy.WorkspaceWrite)
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 0 {
		t.Errorf("%d terminals are open after a widening", n)
	}
	wantText(t, s.does(m, onTerminal("read")), true, "The terminal main is gone: the sandbox was widened")
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	if n, w := len(s.ro.Starts()), len(s.rw.Starts()); n != 1 || w != 2 {
		t.Errorf("tools-ro has run %d terminals, tools-rw %d; want 1 and 2", n, w)
	}
	wantLaws(t, s, m)
}

// Opened under less than what stands, a terminal stays so, and each result says so.
func TestANarrowerTerminalIsNamed(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		switch n {
		case 1:
			return reply{calls: []chatCall{onTerminal("open")}, hold: hold}
		case 2:
			return reply{calls: []chatCall{onTerminal("send", "input", "x\n")}}
		}
		return reply{text: "ok"}
	})
	m := actor{endpoint: model}
	s := terminals(t, m)
	s.switchTo(policy.ReadOnly)
	s.send("m1", "open")
	model.awaitRequest(1)
	s.switchTo(policy.WorkspaceWrite)
	close(hold)
	s.answered("m1")
	results := s.logged(eventlog.TypeToolResult)
	wantText(t, payload[eventlog.ToolResult](t, results[0]), false, "ready")
	wantText(t, payload[eventlog.ToolResult](t, results[1]), false, "heard:x", "sandbox mode read-only, network none, which is narrower")
	if len(s.ro.Starts()) != 1 || len(s.rw.Starts()) != 0 {
		t.Error("the terminal does not run where its request was told")
	}
	wantLaws(t, s, m)
}

// A restart, a lost connection and the end of the lease: each is told for what it is.
func TestATerminalThatIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(s *session)
		want string
	}{
		"the agent was restarted": {func(s *session) {
			if err := s.stop(); err != nil {
				s.t.Fatal(err)
			}
			s.boot()
			s.switchTo(policy.WorkspaceWrite)
		}, "the agent was restarted"},
		"the connection was lost": {func(s *session) {
			s.rw.Hangup()
			s.await("it is gone", func(o wire.Observed) bool { return o.Activity.Terminals == 0 })
		}, "the connection to the tools container was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newActor(t)
			s := terminals(t, m)
			s.switchTo(policy.WorkspaceWrite)
			wantText(t, s.does(m, onTerminal("open")), false, "ready")
			tc.lose(s)
			wantText(t, s.does(m, onTerminal("send", "input", "x\n")), true, "The terminal main is gone: "+tc.want)
			wantText(t, s.does(m, onTerminal("read")), true, "There is no terminal main")
			wantText(t, s.does(m, onTerminal("open")), false, "ready")
			wantLaws(t, s, m)
		})
	}
}

// A session that does nothing but keep a terminal open must hear its operator.
func TestTheLeaseEndsAnIdleTerminal(t *testing.T) {
	m := newActor(t)
	s, clock := leased(t, m.endpoint, echo("", 0))
	s.ro.Terminal, s.rw.Terminal = shell, shell
	s.switchTo(policy.WorkspaceWrite)
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	clock.Add(int64(61*time.Second + leaseGrace))
	s.awaitLogged(eventlog.TypeLeaseExpired, 1)
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 0 {
		t.Errorf("%d terminals are open although the lease is over", n)
	}
	s.Heard()
	s.awaitLogged(eventlog.TypeLeaseRenewed, 1)
	wantText(t, s.does(m, onTerminal("read")), true, "The terminal main is gone: the operator was not heard")
	wantLaws(t, s, m)
}

func TestOnlySoManyTerminals(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.switchTo(policy.WorkspaceWrite)
	for i := range maxTerminals {
		wantText(t, s.does(m, onTerminal("open", "name", fmt.Sprint("t", i))), false, "ready")
	}
	wantText(t, s.does(m, onTerminal("open", "name", "more")), true, "4 terminals may be open", "t0, t1, t2, t3")
	wantText(t, s.does(m, onTerminal("close", "name", "t2")), false, "closed")
	wantText(t, s.does(m, onTerminal("open", "name", "more")), false, "ready")
	s.desired.Stop = true
	if _, _, err := s.SetDesired(t.Context(), s.desired); err != nil {
		t.Fatal(err)
	}
	s.awaitLogged(eventlog.TypeSessionEnd, 1)
	if n := s.Observed(t.Context(), 0).Activity.Terminals; n != 0 {
		t.Errorf("%d terminals are open in a session that has ended", n)
	}
	if !slices.Contains(kinds(s.events()), eventlog.TypeSessionEnd) {
		t.Error("the session has not ended")
	}
	wantLaws(t, s, m)
}

// What could not be started is no terminal.
func TestATerminalThatDoesNotStart(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.rw.Terminal = func(context.Context, wire.Start, *os.File) wire.Exited {
		return wire.Exited{Cause: wire.Refused, Detail: "entering /nope: no such file or directory"}
	}
	s.switchTo(policy.WorkspaceWrite)
	r := s.does(m, onTerminal("open", "cwd", "/nope"))
	wantText(t, r, true, "not started: entering /nope")
	if r.Outcome != eventlog.OutcomeRefused || r.Terminal == nil || r.Terminal.Open {
		t.Errorf("the result is %+v", r)
	}
	wantText(t, s.does(m, onTerminal("read")), true, "There is no terminal main")
}

// Cancelling a turn ends the wait and not the terminal.
func TestCancellingATurnLeavesItsTerminal(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.switchTo(policy.WorkspaceWrite)
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	m.calls <- chatCall{"c", "terminal", `{"action":"read","wait_millis":60000}`}
	s.send("long", "wait")
	s.awaitLogged(eventlog.TypeToolStart, 2)
	s.desired.Messages = append(s.desired.Messages, wire.Message{UID: "stop", Author: "alice", Content: "stop", Interrupt: true})
	m.calls <- onTerminal("send", "input", "hello\n")
	if _, _, err := s.SetDesired(t.Context(), s.desired); err != nil {
		t.Fatal(err)
	}
	s.answered("stop")
	results := s.logged(eventlog.TypeToolResult)
	wantText(t, payload[eventlog.ToolResult](t, results[1]), false, "stopped waiting: the turn was cancelled. The terminal main stays open")
	wantText(t, payload[eventlog.ToolResult](t, results[2]), false, "heard:hello")
	wantLaws(t, s, m)
}

// No terminal lives beside a call that a person let do more.
func TestTerminalsEndBeforeAGrantedCall(t *testing.T) {
	m := newActor(t)
	s := terminals(t, m)
	s.rw.Call = func(context.Context, wire.Start, func([]byte)) wire.Exited {
		if n := s.livingTerminals(); n != 0 {
			t.Errorf("%d terminals live beside a granted call", n)
		}
		return wire.Exited{Cause: wire.Finished}
	}
	s.applyPolicy(asks)
	wantText(t, s.does(m, onTerminal("open")), false, "ready")
	m.calls <- wants("c", "touch f", policy.WorkspaceWrite)
	s.send("more", "go on")
	s.decide(yes(s.pending()))
	s.answered("more")
	if len(s.rw.Starts()) != 1 {
		t.Error("the granted call did not run")
	}
	wantText(t, s.does(m, onTerminal("read")), true, "The terminal main is gone: a call was let run once")
	wantLaws(t, s, m)
}

func (s *session) livingTerminals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.livingLocked()
}
