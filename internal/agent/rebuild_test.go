// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/replaymodel"
)

const keptScript = `
version: 1
rules:
- when: {lastUser: The conversation is about to be shortened}
  reply: {text: "All is well so far."}
- when: {lastUser: trouble}
  faults: [{kind: status, status: 503, times: 1}]
  reply: {text: "It was short."}
- when: {lastUser: work, toolResults: 0}
  reply:
    reasoning: I should look.
    text: I look.
    toolCalls:
    - {name: read, arguments: {path: a}}
    - {name: bash, arguments: {command: ls}}
- when: {}
  reply: {text: "Done."}
`

// The logs of sessions that were once run give every request of theirs for ever: with switches, calls, a retry, a
// summary and a restart, over each provider. KEEP_LOGS=1 runs such sessions anew and keeps their logs where none is.
func TestKeptLogsGiveTheirRequests(t *testing.T) {
	for _, provider := range model.Providers() {
		t.Run(provider, func(t *testing.T) {
			kept := filepath.Join("testdata", "kept", provider)
			if _, err := os.Stat(kept); err != nil && os.Getenv("KEEP_LOGS") != "" {
				keepLog(t, provider, kept)
			}
			counts := map[eventlog.Type]int{}
			summaries := 0
			for e, err := range eventlog.Read(kept) {
				if err != nil {
					t.Fatal(err)
				}
				counts[e.Type]++
				if e.Type == eventlog.TypeRequestSent && payload[eventlog.RequestSent](t, e).Ask != "" {
					summaries++
				}
			}
			if counts[eventlog.TypeBoot] < 2 || counts[eventlog.TypeRetry] == 0 || counts[eventlog.TypeCompaction] == 0 || counts[eventlog.TypeContextSnapshot] < 3 || summaries == 0 {
				t.Fatalf("the log holds less than it should: %v, %d summaries", counts, summaries)
			}
			r, err := Rebuild(kept, keptVersion)
			if err != nil || r.Requests != counts[eventlog.TypeRequestSent] {
				t.Errorf("Rebuild() = %+v, %v; want %d requests", r, err, counts[eventlog.TypeRequestSent])
			}
		})
	}
}

// keptVersion is who wrote the kept logs.
const keptVersion = "kept"

// keepLog runs a session and keeps its log.
func keepLog(t *testing.T, provider, kept string) {
	t.Helper()
	script, err := replaymodel.Parse([]byte(keptScript))
	if err != nil {
		t.Fatal(err)
	}
	server := &endpoint{Server: httptest.NewServer(replaymodel.New(script))}
	t.Cleanup(server.Close)
	s := start(t, server, echo(strings.Repeat("some output\n", 300), 0), func(s *session) {
		s.options.Version = keptVersion
		s.desired.Config.Model.Provider = provider
		s.desired.Config.Model.ContextWindow = 4096
	})
	s.switchTo(policy.ReadOnly)
	for i, content := range []string{"hello", "work", "trouble", "work", "work", "hello"} {
		s.switchTo(policy.Modes()[i%3])
		s.say(fmt.Sprintf("m%d", i), content)
		if i == 3 {
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			s.boot()
			s.switchTo(policy.WorkspaceWrite)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(kept, os.DirFS(s.options.LogDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(kept, "outputs")); err != nil {
		t.Fatal(err)
	}
}

// A log whose chain holds and whose events were changed does not give what was sent, and it is said which request
// it is; what another version has sent is counted and no error.
func TestAChangedLogDoesNotGiveItsRequests(t *testing.T) {
	s := start(t, newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} }), nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "one")
	s.say("m2", "two")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, _, err := eventlog.Open(dir, eventlog.Options{PodUID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.events() {
		if e.Type == eventlog.TypeUserMessage {
			e.Data = bytes.Replace(e.Data, []byte("two"), []byte("six"), 1)
		}
		if _, err := log.AppendSync(e.Type, e.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Rebuild(dir, "test"); err == nil || r.Requests != 1 || !strings.Contains(err.Error(), "does not give the request of event") {
		t.Errorf("Rebuild() = %+v, %v; want one request and which one is not given", r, err)
	}
	if r, err := Rebuild(dir, "another"); err != nil || r.Requests != 1 || r.Foreign != 1 || r.ForeignVersion != "test" {
		t.Errorf("Rebuild() by another version = %+v, %v", r, err)
	}
	if r, err := Rebuild(s.options.LogDir, "test"); err != nil || r.Requests != 2 {
		t.Errorf("Rebuild() of what was not changed = %+v, %v", r, err)
	}
}
