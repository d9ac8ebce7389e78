// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A request survives a restart under the name of its call; what came after it in its step did not
// start and says so.
func TestARequestSurvivesARestart(t *testing.T) {
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{wants("c1", "touch f", policy.WorkspaceWrite), bash("c2", "ls"), {"c3", "read", `{"path":"output:1.1.1"}`}}}
		}
		return reply{text: "done"}
	})
	c := &clock{}
	for name, tc := range map[string]struct {
		meanwhile func(*session)
		then      func(*session, wire.Approval)
		want      string
		ran       int
	}{
		"and is answered": {func(*session) {}, func(s *session, a wire.Approval) {
			if again := s.pending(); again != a {
				t.Errorf("%+v waits after the restart, want %+v", again, a)
			}
			s.decide(yes(a))
		}, "(exit status 0)\nThis call ran once", 1},
		"and its time passes": {func(*session) { c.forward(time.Hour) }, func(*session, wire.Approval) {}, "denied: nobody let it run in time.", 0},
		"and its mode is another": {func(s *session) {
			s.desired.Policy = string(policy.Encode(policy.Policy{Mode: policy.WorkspaceWrite, Approval: policy.ApprovalAsk, Ceiling: policy.Unbounded}).Bytes)
			s.desired.Stamp.SessionGeneration++
		}, func(*session, wire.Approval) {}, "not run: the request was withdrawn, because the policy of the session changed.", 0},
		"and its turn is cancelled": {func(s *session) {
			s.desired.Messages = append(s.desired.Messages, wire.Message{UID: "m2", Content: "stop and go", Interrupt: true})
		}, func(*session, wire.Approval) {}, "not run: the turn was cancelled.", 0},
		"and its arguments mean something else": {func(s *session) { s.desired.Config.Workspace = "/other" }, func(s *session, a wire.Approval) {
			s.decide(yes(a))
		}, "not run: the request was withdrawn, because what would run is no longer what was shown.", 0},
		"and its session ends": {func(s *session) { s.desired.Stop = true }, func(*session, wire.Approval) {}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			model.mu.Lock()
			model.requests = nil
			model.mu.Unlock()
			s := start(t, model, needsWrite, withClock(c))
			s.applyPolicy(asks)
			s.send("m1", "go")
			a := s.pending()
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			tc.meanwhile(s)
			s.boot()
			s.decide()
			tc.then(s, a)
			s.answered("m1")
			if n := len(s.rw.Starts()) + len(s.ro.Starts()); n != tc.ran {
				t.Errorf("%d calls ran, want %d", n, tc.ran)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			for _, e := range s.events() {
				if e.Type != eventlog.TypeToolResult || tc.want == "" {
					continue
				}
				if r := payload[eventlog.ToolResult](t, e); r.CallID == a.CallID && !strings.HasPrefix(r.Text, tc.want) || r.CallID != a.CallID && !strings.HasPrefix(r.Text, "not started: ") {
					t.Errorf("the result of %s is %q", r.CallID, r.Text)
				}
			}
			checkLaws(t, "/workspace", s.events(), nil)
		})
	}
}

// Wherever a crash cuts the log of a call that a person lets run, it runs once at most: the next
// boot asks on, starts it with the unused grant, or says that nobody knows what became of it.
func TestEveryCrashAroundAGrant(t *testing.T) {
	answer := func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "done"}
		}
		return reply{calls: []chatCall{wants("c1", "touch f", policy.WorkspaceWrite)}}
	}
	whole := start(t, newEndpoint(t, answer), needsWrite)
	whole.applyPolicy(asks)
	whole.send("m1", "go")
	whole.decide(yes(whole.pending()))
	whole.answered("m1")
	if err := whole.stop(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(whole.options.LogDir, "*.jsonl"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	lines := linesOf(t, segments[0])
	first := slices.IndexFunc(lines, func(l []byte) bool { return strings.Contains(string(l), `"type":"approval/requested"`) })
	for n := first; n < len(lines); n++ {
		var last string
		if _, err := fmt.Sscanf(string(lines[n-1][strings.Index(string(lines[n-1]), `"type":`):]), `"type":%q`, &last); err != nil {
			t.Fatal(err)
		}
		t.Run("after "+strings.ReplaceAll(last, "/", " "), func(t *testing.T) {
			s := start(t, newEndpoint(t, answer), needsWrite)
			s.bootOn(filepath.Base(segments[0]), lines[:n])
			s.desired = whole.desired
			s.desired.Decisions = nil
			s.desired.Config.Model.BaseURL = s.model.URL + "/v1"
			asked := false
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for o := s.Observed(ctx, 0); ; o = s.Observed(ctx, o.Revision) {
				if ctx.Err() != nil {
					t.Fatalf("the message is never answered; observed last: %+v", o)
				}
				if o.Applied == nil {
					s.decide()
				}
				if len(o.Approvals) > 0 && !asked {
					asked = true
					s.decide(yes(o.Approvals[0]))
				}
				if len(o.Messages) > 0 && o.Messages[0].State == wire.Answered {
					break
				}
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			events := s.events()
			checkLaws(t, "/workspace", events, nil)
			want := map[string]string{"grant/used": "but what was granted is spent", "tool/start": "outcome unknown"}[last]
			for i, e := range events {
				if r, ok := resultAt(t, e); ok && i >= n && want != "" && !strings.Contains(r.Text, want) {
					t.Errorf("the result is %q, want %q", r.Text, want)
				}
			}
			if ran := len(s.rw.Starts()); ran > 1 || want != "" && ran != 0 {
				t.Errorf("the call ran %d times after the crash", ran)
			}
		})
	}
	if entries, err := os.ReadDir(whole.options.LogDir); err != nil || len(entries) == 0 {
		t.Fatal(err)
	}
}

func resultAt(t *testing.T, e eventlog.Event) (eventlog.ToolResult, bool) {
	t.Helper()
	if e.Type != eventlog.TypeToolResult {
		return eventlog.ToolResult{}, false
	}
	return payload[eventlog.ToolResult](t, e), true
}

// What needs no person any more is answered by the boot itself, not when the tools are back.
func TestABootAnswersWhatIsDecided(t *testing.T) {
	for name, tc := range map[string]struct {
		last func(*history)
		open bool
	}{
		"it waits":               {func(*history) {}, true},
		"its turn was cancelled": {func(h *history) { h.interrupt = true; h.message("stop") }, false},
		"it was denied": {func(h *history) {
			h.record(h.f.planDecision(wire.Decision{CallID: h.f.asked.CallID, Digest: h.f.asked.Digest, Decision: wire.Denied}, h.now)...)
		}, false},
		"it was withdrawn": {func(h *history) { h.switchTo(policy.Policy{}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.asking()
			tc.last(h)
			h.record(h.f.planRecovery()...)
			if h.f.asked.open() != tc.open || (len(h.f.openCalls()) > 0) != tc.open {
				t.Errorf("after the boot the request is open: %v, and %d calls wait; want %v", h.f.asked.open(), len(h.f.openCalls()), tc.open)
			}
			checkLaws(t, workspace, h.events, h.bodies)
		})
	}
}

// A change of policy ends a call with a grant where nobody could give that grant any more, and only
// there. Nothing else that a ceiling or the approval policy does ends what runs.
func TestAChangeEndsAGrantAboveIt(t *testing.T) {
	change := func(f func(p *policy.Policy)) policy.Policy {
		p := asks
		f(&p)
		return p
	}
	for name, tc := range map[string]struct {
		to   policy.Policy
		ends bool
	}{
		"a ceiling below it":           {change(func(p *policy.Policy) { p.Ceiling.Mode = policy.ReadOnly }), true},
		"a ceiling at it":              {change(func(p *policy.Policy) { p.Ceiling.Mode = policy.WorkspaceWrite }), false},
		"nobody may be asked":          {change(func(p *policy.Policy) { p.Approval = policy.ApprovalNever }), true},
		"a wider mode":                 {change(func(p *policy.Policy) { p.Mode = policy.DangerFullAccess }), false},
		"the same mode, nobody to ask": {change(func(p *policy.Policy) { p.Mode, p.Approval = policy.WorkspaceWrite, policy.ApprovalNever }), false},
	} {
		t.Run(name, func(t *testing.T) {
			started, release := make(chan string, 1), make(chan struct{})
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				if n == 1 {
					return reply{calls: []chatCall{wants("c1", "touch f", policy.WorkspaceWrite)}}
				}
				return reply{text: "done"}
			})
			s := start(t, model, func(ctx context.Context, st wire.Start, _ func([]byte)) wire.Exited {
				started <- st.Call
				select {
				case <-release:
				case <-ctx.Done():
				}
				return wire.Exited{Cause: wire.Finished}
			})
			s.applyPolicy(asks)
			s.send("m1", "go")
			s.decide(yes(s.pending()))
			<-started
			s.applyPolicy(tc.to)
			close(release)
			s.answered("m1")
			want := "(exit status 0)\n"
			if tc.ends {
				want = textNarrowed + "\n"
			}
			if got := model.results(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("results %q, want %q", got, want)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			checkLaws(t, "/workspace", s.events(), nil)
		})
	}
}
