// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
)

// lawful ends a session and checks the laws of its log, with the bodies that arrived.
func (s *session) lawful() []eventlog.Event {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
	bodies := map[string][]byte{}
	for _, r := range s.model.seen() {
		sum := sha256.Sum256(r.raw)
		bodies[hex.EncodeToString(sum[:])] = r.raw
	}
	events := s.events()
	checkLaws(s.t, "/workspace", events, bodies)
	return events
}

func contents(r chatRequest) []string {
	var all []string
	for _, m := range r.Messages[1:] {
		switch {
		case policy.IsSnapshot(m.Content):
			all = append(all, "snapshot")
		default:
			all = append(all, m.Content[:min(len(m.Content), 40)])
		}
	}
	return all
}

func asked(r chatRequest) bool { return r.last().Content == askSummary }

// Results that are too long are cut before anything else, and where that is enough nothing is
// summed up.
func TestOversizedResultsAreCutFirst(t *testing.T) {
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		switch n {
		case 1:
			return reply{calls: []chatCall{bash("c1", "cat f")}}
		case 2:
			return reply{text: strings.Repeat("t", 900), tokens: 3300}
		}
		return reply{text: "ok"}
	})
	s := start(t, model, echo("begin"+strings.Repeat("x", 8000)+"end\n", 0))
	s.desired.Config.Model.ContextWindow = 4000
	s.switchTo(policy.ReadOnly)
	s.say("m1", "read it")
	s.say("m2", "and now")
	requests := model.seen()
	if len(requests) != 3 {
		t.Fatalf("%d requests, want 3", len(requests))
	}
	result := requests[2].Messages[4]
	if got := result.Content; result.Role != "tool" || len(got) > 1200 || !strings.HasPrefix(got, "begin") || !strings.HasSuffix(got, "end\n(exit status 0)") || !strings.Contains(got, "left out later on") {
		t.Errorf("the result is %q", got)
	}
	compactions := all[eventlog.Compaction](t, s.lawful(), eventlog.TypeCompaction)
	if len(compactions) != 1 || compactions[0].Summary != "" || compactions[0].Cut[0] != "1.1.1" || compactions[0].Cause != eventlog.CauseWindow {
		t.Errorf("the log says %+v", compactions)
	}
}

// At 80 % of the window a summary takes the place of all but the newest part. The request for it
// has the prefix of the others, and the snapshot follows the summary.
func TestASummaryTakesThePlaceOfWhatIsOlder(t *testing.T) {
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		switch {
		case asked(r):
			return reply{text: "All is well. " + policy.SnapshotLead, tokens: 700}
		case n == 1:
			return reply{text: strings.Repeat("a", 2000), tokens: 100}
		case n == 2:
			return reply{text: "two", tokens: 810}
		}
		return reply{text: "three", tokens: 50}
	})
	s := start(t, model, nil)
	s.desired.Config.Model.ContextWindow = 1000
	s.switchTo(policy.ReadOnly)
	s.say("m1", "first")
	s.say("m2", "second")
	if got := s.say("m3", "third"); got.Reply != "three" {
		t.Errorf("the third message is %+v", got)
	}
	requests := model.seen()
	if len(requests) != 4 || !asked(requests[2]) {
		t.Fatalf("%d requests; the third asks %q", len(requests), requests[2].last().Content)
	}
	before := requests[1].raw[:strings.Index(string(requests[1].raw), `{"role":"user","content":"Message from alice:\n\nsecond`)]
	if !strings.HasPrefix(string(requests[2].raw), string(before)) {
		t.Errorf("the request for the summary does not have the prefix of the others:\n%s", requests[2].raw)
	}
	got := contents(requests[3])
	if len(got) != 5 || !strings.HasPrefix(got[0], "Summary of") || got[1] != "snapshot" || !strings.Contains(got[2], "second") || got[3] != "two" || !strings.Contains(got[4], "third") {
		t.Errorf("the next request carries %q", got)
	}
	if text := requests[3].Messages[1].Content; !strings.Contains(text, "All is well") || strings.Contains(text, policy.SnapshotLead) {
		t.Errorf("the summary is %q", text)
	}
	usage := s.Observed(t.Context(), 0).Usage
	if usage.Input != 100+810+700+50 {
		t.Errorf("usage is %+v: it must count the request for the summary", usage)
	}
	s.say("m4", "fourth")
	extends(t, model.seen()[3:])
	s.lawful()
}

// An endpoint that calls a request too long is asked once more with a shorter one, whether or not the
// window was known.
func TestAContextOverflowIsMendedOnce(t *testing.T) {
	overflow := reply{status: http.StatusBadRequest, said: "This model's maximum context length is 1000 tokens."}
	for name, stays := range map[string]bool{"mended": false, "it stays": true} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				switch {
				case asked(r):
					return reply{text: "All is well."}
				case n == 2 || stays && n > 2:
					return overflow
				}
				return reply{text: strings.Repeat("a", 3000), tokens: 500}
			})
			s := start(t, model, nil)
			s.switchTo(policy.WorkspaceWrite)
			s.say("m1", "first")
			got := s.say("m2", "second")
			want := ReasonCompleted
			if stays {
				want = ReasonModelFailed
			}
			if requests := model.seen(); got.Reason != want || len(requests) != 4 || !asked(requests[2]) {
				t.Errorf("the turn ended with %+v after %d requests", got, len(requests))
			}
			if sent := all[eventlog.RequestSent](t, s.lawful(), eventlog.TypeRequestSent); sent[3].Attempt != 2 || sent[3].Step != sent[1].Step {
				t.Errorf("the repetition is %+v", sent[3])
			}
		})
	}
}

// Where there is nothing to shorten, the endpoint's refusal ends the turn and is told.
func TestAnOverflowThatNothingMends(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply {
		return reply{status: http.StatusBadRequest, said: "prompt is too long"}
	})
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	if got := s.say("m1", "go"); got.Reason != ReasonModelFailed || !strings.Contains(got.Reply, "context window") || len(model.seen()) != 1 {
		t.Errorf("the turn ended with %+v after %d requests", got, len(model.seen()))
	}
}

// A summary that does not come is asked for again, and is no reason to stop while there is room. What it
// cost counts, and it is not asked for anew with every request.
func TestASummaryThatDoesNotCome(t *testing.T) {
	asks := 0
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if asked(r) {
			asks++
			return reply{calls: []chatCall{bash("c", "ls")}, tokens: 7}
		}
		return reply{text: strings.Repeat("a", 3000-n), tokens: 850}
	})
	s := start(t, model, nil)
	s.desired.Config.Model.ContextWindow = 1000
	s.switchTo(policy.WorkspaceWrite)
	s.say("m1", "first")
	if got := s.say("m2", "second"); got.Reason != ReasonCompleted || len(s.rw.Starts()) != 0 || asks != maxSummaries {
		t.Errorf("the turn ended with %+v, %d calls ran, %d summaries were asked for", got, len(s.rw.Starts()), asks)
	}
	if got, want := s.Observed(t.Context(), 0).Usage.Input, int64(2*850+maxSummaries*7); got != want {
		t.Errorf("%d tokens are counted, want %d", got, want)
	}
	s.setNextSummary(1 << 20) // the transcript has not grown enough
	if s.say("m3", "third"); asks != maxSummaries {
		t.Errorf("%d summaries were asked for, want no more", asks)
	}
	s.setNextSummary(0)
	if s.say("m4", "fourth"); asks != 2*maxSummaries {
		t.Errorf("%d summaries were asked for, want %d after it has grown", asks, 2*maxSummaries)
	}
	events := s.lawful()
	if n := len(all[eventlog.Compaction](t, events, eventlog.TypeCompaction)); n != 0 {
		t.Errorf("%d compactions", n)
	}
	for _, r := range all[eventlog.Retry](t, events, eventlog.TypeRetry) {
		if r.Reason != reasonNoSummary || r.Usage.Input != 7 {
			t.Errorf("the log says %+v", r)
		}
	}
}

// One that comes at the second asking is used.
func TestASummaryThatComesLate(t *testing.T) {
	asks := 0
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		switch {
		case asked(r):
			if asks++; asks == 1 {
				return reply{text: " \n"}
			}
			return reply{text: "All is well."}
		case asks > 0:
			return reply{text: "short", tokens: 100}
		}
		return reply{text: strings.Repeat("a", 3000), tokens: 850}
	})
	s := start(t, model, nil)
	s.desired.Config.Model.ContextWindow = 1000
	s.switchTo(policy.WorkspaceWrite)
	s.say("m1", "first")
	s.say("m2", "second")
	if got := all[eventlog.Compaction](t, s.lawful(), eventlog.TypeCompaction); len(got) != 1 || !strings.Contains(got[0].Summary, "All is well.") {
		t.Errorf("the log says %+v", got)
	}
}

func (s *session) setNextSummary(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nextSummary == 0 {
		s.t.Error("the next summary may come at once")
	}
	s.nextSummary = bytes
}
