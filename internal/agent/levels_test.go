// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// startAt starts an agent whose node enforces a level, for a class that demands one.
func startAt(t *testing.T, model *endpoint, level, minimum wire.Level, call func(context.Context, wire.Start, func([]byte)) wire.Exited) *session {
	t.Helper()
	s := start(t, model, call, func(s *session) {
		for _, sup := range []*supervisortest.Supervisor{s.ro, s.rw} {
			sup.Level = level
		}
		s.desired.Config.MinimumLevel = minimum
	})
	return s
}

// No call starts on a node that enforces less than the mode needs or the class demands.
func TestTheGateHonoursTheLevel(t *testing.T) {
	for name, tc := range map[string]struct {
		level, minimum wire.Level
		mode           policy.Mode
		want           wire.ProblemReason // "": calls run
	}{
		"all that was demanded":             {wire.LevelFiles, wire.LevelFiles, policy.DangerFullAccess, ""},
		"less than the class demands":       {wire.LevelFiles, wire.LevelFull, policy.WorkspaceWrite, wire.BelowMinimum},
		"an agent that was told no minimum": {wire.LevelFiles, "", policy.WorkspaceWrite, wire.BelowMinimum},
		"read-only by the mount":            {wire.LevelMount, wire.LevelMount, policy.ReadOnly, ""},
		"a wider mode by the mount":         {wire.LevelMount, wire.LevelMount, policy.WorkspaceWrite, wire.ProbeFailed},
		"nothing":                           {wire.LevelNone, wire.LevelMount, policy.ReadOnly, wire.ProbeFailed},
		"a level that is not known":         {"Most", wire.LevelMount, policy.ReadOnly, wire.ProbeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(_ int, r chatRequest) reply {
				if r.lastSaid().Role == "tool" {
					return reply{text: "done"}
				}
				return reply{calls: []chatCall{bash("c1", "ls")}}
			})
			s := startAt(t, model, tc.level, tc.minimum, echo("", 0))
			o := s.switchTo(tc.mode)
			if tc.want == "" {
				if got := s.say("m1", "go"); got.Reply != "done" {
					t.Errorf("the turn ended with %+v", got)
				}
				return
			}
			if o.Activity.State != wire.Paused || len(o.Problems) != 2 || o.Problems[0].Reason != tc.want {
				t.Errorf("observed %s and %+v, want %s of both containers", o.Activity.State, o.Problems, tc.want)
			}
			s.send("m1", "go")
			s.push(tc.mode) // whatever the first push let through has come through with this one
			if n := len(model.seen()) + len(s.ro.Starts()) + len(s.rw.Starts()); n != 0 {
				t.Errorf("%d requests and calls left", n)
			}
		})
	}
}

// Without scopes calls that only read do not run beside one another either.
func TestWithoutScopesCallsRunOneAtATime(t *testing.T) {
	for level, most := range map[wire.Level]int32{wire.LevelFiles: 1, wire.LevelFull: 3} {
		model := newEndpoint(t, func(_ int, r chatRequest) reply {
			if r.lastSaid().Role == "tool" {
				return reply{text: "done"}
			}
			var calls []chatCall
			for _, id := range []string{"c1", "c2", "c3"} {
				calls = append(calls, chatCall{id, "read", `{"path":"x"}`})
			}
			return reply{calls: calls}
		})
		var running, together atomic.Int32
		s := startAt(t, model, level, wire.LevelFiles, func(ctx context.Context, _ wire.Start, _ func([]byte)) wire.Exited {
			together.Store(max(together.Load(), running.Add(1)))
			defer running.Add(-1)
			for deadline := time.Now().Add(200 * time.Millisecond); running.Load() < 3 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			return wire.Exited{Cause: wire.Finished}
		})
		s.switchTo(policy.ReadOnly)
		if got := s.say("m1", "go"); got.Reply != "done" {
			t.Errorf("the turn ended with %+v", got)
		}
		if got := together.Load(); got != most {
			t.Errorf("%s: %d calls ran at once, want %d", level, got, most)
		}
		var results []string
		for _, m := range model.seen()[1].Messages {
			if m.Role == "tool" {
				results = append(results, m.ToolCallID)
			}
		}
		if got := strings.Join(results, " "); got != "c1 c2 c3" {
			t.Errorf("results came as %s", got)
		}
	}
}
