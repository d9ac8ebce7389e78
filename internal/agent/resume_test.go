// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func linesOf(t *testing.T, segment string) [][]byte {
	t.Helper()
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.SplitAfter(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
}

// bootOn ends the agent and starts one that finds these lines for its log.
func (s *session) bootOn(segment string, lines [][]byte) {
	s.t.Helper()
	err := s.stop()
	if err == nil {
		err = os.RemoveAll(s.options.LogDir)
	}
	if err == nil {
		err = os.Mkdir(s.options.LogDir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.options.LogDir, segment), bytes.Join(lines, nil), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.boot()
}

// Wherever a crash cuts the log of a turn, the next boot goes on with the turn: the message is
// answered in its own turn, no call starts twice, and the laws hold over both boots.
func TestEveryCrashIsGoneOnFrom(t *testing.T) {
	answer := func(_ int, r chatRequest) reply {
		if n := len(r.Messages); n > 4 {
			return reply{text: "done"}
		}
		return reply{calls: []chatCall{bash("c1", "ls"), {"c2", "read", `{"path":"f"}`}}}
	}
	whole := start(t, newEndpoint(t, answer), echo("f\n", 0))
	whole.switchTo(policy.WorkspaceWrite)
	whole.say("m1", "go")
	if err := whole.stop(); err != nil {
		t.Fatal(err)
	}
	segments, err := os.ReadDir(whole.options.LogDir)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	for _, f := range segments {
		if strings.HasSuffix(f.Name(), ".jsonl") {
			name = f.Name()
		}
	}
	lines := linesOf(t, filepath.Join(whole.options.LogDir, name))
	received := 0
	for i, line := range lines {
		if bytes.Contains(line, []byte(`"type":"message/received"`)) {
			received = i
		}
	}
	for n := received + 1; n < len(lines); n++ {
		t.Run(fmt.Sprintf("after %d events", n-1), func(t *testing.T) {
			model := newEndpoint(t, answer)
			s := start(t, model, echo("f\n", 0))
			s.bootOn(name, lines[:n])
			s.desired.Messages = append(s.desired.Messages, wire.Message{UID: "m1", Author: "alice", Content: "go"})
			s.desired.Config.Model = whole.desired.Config.Model
			s.desired.Config.Model.BaseURL = model.URL + "/v1"
			s.switchTo(policy.WorkspaceWrite)
			if got := s.answered("m1"); got.Turn != 1 || got.Reason != ReasonCompleted || got.Reply != "done" {
				t.Errorf("the message is %+v", got)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			bodies := map[string][]byte{}
			for _, r := range model.seen() {
				if !strings.Contains(string(r.raw), `"Message from alice:\n\ngo"`) {
					t.Errorf("a request carries no message: %s", r.raw)
				}
				sum := sha256.Sum256(r.raw)
				bodies[hex.EncodeToString(sum[:])] = r.raw
			}
			events := s.events()
			checkLaws(t, "/workspace", events, bodies)
			open := map[string]string{} // calls that had started and not ended at the crash
			for i, e := range events {
				switch e.Type {
				case eventlog.TypeToolStart:
					if i < n-1 {
						open[payload[eventlog.ToolStart](t, e).CallID] = eventlog.OutcomeUnknown
					}
				case eventlog.TypeToolResult:
					r := payload[eventlog.ToolResult](t, e)
					if want, was := open[r.CallID]; was && i >= n-1 && r.Outcome != want {
						t.Errorf("call %s has the outcome %q, want %q", r.CallID, r.Outcome, want)
					}
				}
			}
		})
	}
}
