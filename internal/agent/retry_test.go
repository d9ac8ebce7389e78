// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
)

// all returns the payloads of one type.
func all[T any](t *testing.T, events []eventlog.Event, kind eventlog.Type) []T {
	t.Helper()
	var found []T
	for _, e := range events {
		if e.Type == kind {
			found = append(found, payload[T](t, e))
		}
	}
	return found
}

// Trouble that may pass is waited out, longer each time, and every attempt is in the log.
func TestTroubleIsWaitedOut(t *testing.T) {
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		switch n {
		case 1:
			return reply{status: http.StatusTooManyRequests, after: "7"}
		case 2:
			return reply{status: http.StatusBadGateway}
		case 3:
			return reply{cut: true}
		case 4:
			return reply{text: "half an ans", cut: true}
		}
		return reply{text: "ok"}
	})
	s := start(t, model, nil)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	s.options.Random = func() float64 { return 0.5 }
	s.options.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	s.boot()
	s.switchTo(policy.ReadOnly)
	if got := s.say("m1", "go"); got.Reply != "ok" || got.Reason != ReasonCompleted {
		t.Errorf("the turn ended with %+v", got)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{7 * time.Second, 750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	var reasons []string
	for i, r := range all[eventlog.Retry](t, s.events(), eventlog.TypeRetry) {
		reasons = append(reasons, r.Reason)
		if r.Attempt != i+1 || r.DelayMillis != want[i].Milliseconds() || r.Message == "" {
			t.Errorf("the log says %+v", r)
		}
	}
	if diff := cmp.Diff([]string{"ModelRateLimited", "ModelServer", "ModelBrokenStream", "ModelBrokenStream"}, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	sent := all[eventlog.RequestSent](t, s.events(), eventlog.TypeRequestSent)
	for i, r := range sent {
		if r.Attempt != i+1 || r.Step != 1 || r.Digest != sent[0].Digest {
			t.Errorf("attempt %d is %+v", i+1, r)
		}
	}
	if len(sent) != 5 {
		t.Errorf("%d requests", len(sent))
	}
}

// Trouble that stays ends the turn; trouble that cannot pass ends it at once, and so does an
// endpoint that wants a longer wait than anybody would sit through.
func TestTroubleThatStays(t *testing.T) {
	for name, tc := range map[string]struct {
		reply reply
		want  int
	}{
		"a broken server":      {reply{status: http.StatusInternalServerError}, maxAttempts},
		"a refused request":    {reply{status: http.StatusBadRequest}, 1},
		"come back in an hour": {reply{status: http.StatusTooManyRequests, after: "3600"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(int, chatRequest) reply { return tc.reply })
			s := start(t, model, nil)
			s.switchTo(policy.ReadOnly)
			if got := s.say("m1", "go"); got.Reason != ReasonModelFailed || len(model.seen()) != tc.want {
				t.Errorf("the turn ended with %+v after %d requests", got, len(model.seen()))
			}
		})
	}
}

// A policy that changes while a request waits to be repeated is stated by the repetition.
func TestASwitchDuringABackOffIsTold(t *testing.T) {
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		if n == 1 {
			return reply{status: http.StatusServiceUnavailable}
		}
		return reply{text: "ok"}
	})
	s := start(t, model, nil)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	waiting, goOn := make(chan struct{}), make(chan struct{})
	s.options.Sleep = func(context.Context, time.Duration) error { close(waiting); <-goOn; return nil }
	s.boot()
	s.switchTo(policy.ReadOnly)
	s.send("m1", "go")
	<-waiting
	s.switchTo(policy.WorkspaceWrite)
	close(goOn)
	s.answered("m1")
	requests := model.seen()
	extends(t, requests)
	if countSnapshots(requests[0]) != 1 || countSnapshots(requests[1]) != 2 {
		t.Errorf("the attempts carry %d and %d snapshots, want 1 and 2", countSnapshots(requests[0]), countSnapshots(requests[1]))
	}
}
