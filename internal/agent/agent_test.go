// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// echo answers a call at once with a text.
func echo(text string, status int) func(context.Context, wire.Start, func([]byte)) wire.Exited {
	return func(_ context.Context, _ wire.Start, write func([]byte)) wire.Exited {
		write([]byte(text))
		return wire.Exited{Cause: wire.Finished, Status: status}
	}
}

// untilEnded runs until the supervisor ends it.
func untilEnded(started chan<- string) func(context.Context, wire.Start, func([]byte)) wire.Exited {
	return func(ctx context.Context, s wire.Start, write func([]byte)) wire.Exited {
		write([]byte("working\n"))
		started <- s.Call
		<-ctx.Done()
		return wire.Exited{}
	}
}

// once calls a tool in the first step of each turn and answers with text in the second.
func once(c chatCall) func(int, chatRequest) reply {
	return func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "done"}
		}
		return reply{calls: []chatCall{c}}
	}
}

// extends checks that what was sent is a prefix of what is sent next, byte by byte.
func extends(t *testing.T, requests []chatRequest) {
	t.Helper()
	for i := 1; i < len(requests); i++ {
		before := bytes.TrimSuffix(requests[i-1].raw, []byte("]}"))
		if !bytes.HasPrefix(requests[i].raw, before) {
			t.Errorf("request %d does not begin with what request %d sent", i+1, i)
		}
	}
}

// The main path: a prompt, a call in the right container, its result, an answer.
func TestAPromptIsAnswered(t *testing.T) {
	model := newEndpoint(t, once(bash("c1", "ls")))
	s := start(t, model, echo("hello\n", 0))
	s.desired.Config.Prompt = "List the files."
	s.switchTo(policy.ReadOnly)
	got := s.answered("")
	want := wire.MessageStatus{Sequence: 1, State: wire.Answered, Turn: 1, Reply: "done", Reason: ReasonCompleted}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	requests := model.seen()
	extends(t, requests)
	first := requests[0].Messages
	if len(first) != 3 || first[0].Role != "system" || !policy.IsSnapshot(first[1].Content) || first[2].Content != "List the files." {
		t.Errorf("the first request carries %+v", first)
	}
	if got := requests[1].last(); got.ToolCallID != "c1" || got.Content != "hello\n(exit status 0)" {
		t.Errorf("the result is %+v", got)
	}
	if starts := s.ro.Starts(); len(starts) != 1 || starts[0].Call != "1.1.1" {
		t.Errorf("tools-ro ran %+v", starts)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	wantKinds := []eventlog.Type{
		"session/start", "boot", "message/received", "policy/applied", "context/snapshot",
		"turn/start", "user/message",
		"step/start", "request/header", "request/sent", "assistant/message", "tool/call", "tool/start", "tool/result", "step/end",
		"step/start", "request/sent", "assistant/message", "step/end", "turn/end",
	}
	if diff := cmp.Diff(wantKinds, kinds(s.events())); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if _, err := eventlog.Verify(s.options.LogDir); err != nil {
		t.Error(err)
	}
}

// Switching to and fro while idle costs the next request nothing.
func TestSwitchingToAndFroWhileIdleIsFree(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "first")
	s.switchTo(policy.WorkspaceWrite)
	s.switchTo(policy.ReadOnly)
	s.say("m2", "second")
	requests := model.seen()
	extends(t, requests)
	if n := countSnapshots(requests[1]); n != 1 {
		t.Errorf("the second request carries %d snapshots, want the first one alone", n)
	}
	s.switchTo(policy.WorkspaceWrite)
	s.say("m3", "third")
	if requests = model.seen(); countSnapshots(requests[2]) != 2 {
		t.Errorf("a switch that lasts is told %d times, want once", countSnapshots(requests[2])-1)
	}
	extends(t, requests)
}

func countSnapshots(r chatRequest) int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "user" && policy.IsSnapshot(m.Content) {
			n++
		}
	}
	return n
}

// A narrowing in the middle of a call: it waits for every container, the result of what it
// ended is logged before the policy, and the snapshot stands behind the result.
func TestNarrowingInTheMiddleOfACall(t *testing.T) {
	started, release := make(chan string, 1), make(chan struct{})
	model := newEndpoint(t, once(bash("c1", "while :; do date >> f; done")))
	s := start(t, model, untilEnded(started))
	s.rw.BeforeNarrowed = func(n wire.Narrow) {
		if n.Epoch.Counter > 1 { // not the one of the boot
			<-release
		}
	}
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "run it")
	<-started
	if o, applied := s.push(policy.ReadOnly); applied || !slices.Contains(o.Unconfirmed, wire.ToolsRW) || o.Applied.Stamp == s.desired.Stamp {
		t.Errorf("applied = %v, unconfirmed %v before the container has confirmed", applied, o.Unconfirmed)
	}
	close(release)
	o := s.await("read-only is applied", func(o wire.Observed) bool { return o.Applied.Stamp == s.desired.Stamp })
	if o.Applied.Killed != 1 || len(o.Unconfirmed) != 0 {
		t.Errorf("killed %d, unconfirmed %v", o.Applied.Killed, o.Unconfirmed)
	}
	s.answered("m1")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	events := s.events()
	result := slices.IndexFunc(events, func(e eventlog.Event) bool { return e.Type == eventlog.TypeToolResult })
	narrowed := slices.IndexFunc(events, func(e eventlog.Event) bool {
		return e.Type == eventlog.TypePolicyApplied && payload[eventlog.PolicyApplied](t, e).Killed == 1
	})
	if result < 0 || narrowed < result {
		t.Errorf("the result stands at %d, the policy at %d", result, narrowed)
	}
	if r := payload[eventlog.ToolResult](t, events[result]); r.Outcome != eventlog.OutcomeKilled || r.Text != "working\n"+textNarrowed {
		t.Errorf("the result is %+v", r)
	}
	requests := model.seen()
	extends(t, requests)
	tail := requests[1].Messages[len(requests[1].Messages)-2:]
	if tail[0].Role != "tool" || !policy.IsSnapshot(tail[1].Content) || !strings.Contains(tail[1].Content, "read-only") {
		t.Errorf("the second request ends with %+v, want the result and then the snapshot", tail)
	}
}

// A call that was asked for under read-only does not run wider because the mode was widened
// since, and its result says under which mode it ran.
func TestACallRunsUnderWhatItsRequestWasTold(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("c1", "touch f")}, hold: hold}
		}
		return reply{text: "done"}
	})
	s := start(t, model, echo("touch: cannot touch 'f': Read-only file system\n", 1))
	s.switchTo(policy.ReadOnly)
	s.send("m1", "write")
	model.awaitRequest(1)
	s.switchTo(policy.WorkspaceWrite)
	close(hold)
	s.answered("m1")
	if len(s.ro.Starts()) != 1 || len(s.rw.Starts()) != 0 {
		t.Errorf("tools-ro ran %d calls, tools-rw %d; want 1 and 0", len(s.ro.Starts()), len(s.rw.Starts()))
	}
	requests := model.seen()
	extends(t, requests)
	n := len(requests[1].Messages)
	if got := requests[1].Messages[n-2].Content; !strings.Contains(got, "exit status 1; sandbox mode read-only") || !strings.Contains(got, "A guess") {
		t.Errorf("the result is %q", got)
	}
	if got := requests[1].Messages[n-1].Content; !policy.IsSnapshot(got) || !strings.Contains(got, "workspace-write") {
		t.Errorf("behind the result stands %q", got)
	}
}

// The other way round: asked for under workspace-write and run under read-only, the result
// names what it ran under.
func TestANarrowerRunIsNamed(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{bash("c1", "ls")}, hold: hold}
		}
		return reply{text: "done"}
	})
	s := start(t, model, echo("f\n", 0))
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "list")
	model.awaitRequest(1)
	s.switchTo(policy.ReadOnly)
	close(hold)
	s.answered("m1")
	requests := model.seen()
	if got := requests[1].Messages[len(requests[1].Messages)-2].Content; !strings.Contains(got, "This call ran under sandbox mode read-only") {
		t.Errorf("the result is %q", got)
	}
}

// Calls that only read run together; everything else waits for what is before it.
func TestOrderOfCalls(t *testing.T) {
	model := newEndpoint(t, func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "done"}
		}
		read := func(id string) chatCall { return chatCall{id, "read", `{"path":"f"}`} }
		return reply{calls: []chatCall{read("c1"), read("c2"), bash("c3", "ls"), read("c4")}}
	})
	two := make(chan struct{}, 2)
	both := make(chan struct{})
	go func() {
		<-two
		<-two
		close(both)
	}()
	s := start(t, model, func(ctx context.Context, st wire.Start, write func([]byte)) wire.Exited {
		if st.Call == "1.1.1" || st.Call == "1.1.2" {
			two <- struct{}{}
			<-both // each of them ends only when both run
		}
		write([]byte(st.Call))
		return wire.Exited{Cause: wire.Finished}
	})
	s.switchTo(policy.ReadOnly)
	s.say("m1", "go")
	messages := model.seen()[1].Messages
	var got []string
	for _, m := range messages[len(messages)-4:] {
		got = append(got, m.ToolCallID+"="+m.Content)
	}
	want := []string{"c1=1.1.1", "c2=1.1.2", "c3=1.1.3\n(exit status 0)", "c4=1.1.4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	var order []string
	for _, st := range s.ro.Starts()[2:] {
		order = append(order, st.Call)
	}
	if diff := cmp.Diff([]string{"1.1.3", "1.1.4"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
