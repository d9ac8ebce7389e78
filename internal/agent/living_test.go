// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
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

// The laws hold for the real gate too: switches, messages, interruptions, lost connections, restarts,
// decisions, an endpoint in trouble and compactions come while requests and calls are under way.
func TestLawsHoldInALivingSession(t *testing.T) {
	seen := map[eventlog.Type]bool{}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				tokens := len(r.raw) / 4
				switch {
				case asked(r):
					return reply{text: "summed up"}
				case n%7 == 3:
					return reply{status: http.StatusServiceUnavailable}
				case n%11 == 5:
					return reply{text: "I", cut: true}
				case n%13 == 6:
					return reply{status: http.StatusBadRequest, said: "too many tokens"}
				case r.lastSaid().Role == "tool" && n%3 == 0:
					return reply{text: "done", tokens: tokens}
				}
				hold := make(chan struct{})
				time.AfterFunc(time.Duration(n%4)*time.Millisecond, func() { close(hold) })
				calls := []chatCall{bash("a", "x"), {"b", "read", `{"path":"f"}`}}
				if n%2 == 0 {
					calls = append(calls, wants("c", "x", policy.Modes()[1+n/2%2]))
				}
				return reply{text: "I try", calls: calls, hold: hold, tokens: tokens}
			})
			s := start(t, model, func(ctx context.Context, st wire.Start, write func([]byte)) wire.Exited {
				write(bytes.Repeat([]byte("x"), 600))
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Millisecond):
				}
				return wire.Exited{Cause: wire.Finished}
			})
			s.desired.Config.Model.ContextWindow = 2500
			s.push(policy.ReadOnly)
			for i := range 40 {
				switch random.IntN(12) {
				case 9, 10, 11:
					for _, a := range s.Observed(t.Context(), 0).Approvals {
						s.decide(yes(a))
					}
				case 8:
					s.interrupt(fmt.Sprintf("m%d", i), "stop and go")
				case 0, 1, 2, 3:
					p := policy.Policy{Mode: policy.Modes()[random.IntN(2)], Ceiling: policy.Unbounded, Approval: policy.ApprovalAsk}
					p.Ceiling.Mode = policy.Modes()[1+random.IntN(2)]
					s.pushPolicy(p)
				case 4, 5:
					s.send(fmt.Sprintf("m%d", i), "go")
				case 6:
					s.rw.Hangup()
				case 7:
					if err := s.stop(); err != nil {
						t.Fatal(err)
					}
					s.boot()
					s.push(policy.Modes()[random.IntN(3)])
				}
				time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
			}
			s.pushPolicy(asks)
			for _, uid := range []string{"x1", "x2", "x3"} { // nobody changes the policy, so there are grants
				s.send(uid, "go")
				s.await(uid+" is answered", func(o wire.Observed) bool {
					for _, a := range o.Approvals {
						s.decide(yes(a))
					}
					return len(o.Messages) > 0 && o.Messages[len(o.Messages)-1].State == wire.Answered
				})
			}
			s.switchTo(policy.WorkspaceWrite)
			s.say("last", "go")
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			bodies := map[string][]byte{}
			for _, r := range model.seen() {
				sum := sha256.Sum256(r.raw)
				bodies[hex.EncodeToString(sum[:])] = r.raw
			}
			events := s.events()
			if _, err := eventlog.Verify(s.options.LogDir); err != nil {
				t.Error(err)
			}
			checkLaws(t, "/workspace", events, bodies)
			sent := len(all[eventlog.RequestSent](t, events, eventlog.TypeRequestSent))
			if r, err := Rebuild(s.options.LogDir, s.options.Version); err != nil || r.Requests != sent || r.Foreign != 0 {
				t.Errorf("Rebuild() = %+v, %v; want %d requests", r, err, sent)
			}
			for _, kind := range kinds(events) {
				seen[kind] = true
			}
		})
	}
	if !seen[eventlog.TypeRetry] || !seen[eventlog.TypeCompaction] || !seen[eventlog.TypeGrantUsed] {
		t.Errorf("no session had trouble, or none was too long or had a grant: there was %v", seen)
	}
}

// A log that cannot be written ends the agent, and nothing starts any more.
func TestALogThatCannotBeWritten(t *testing.T) {
	started := make(chan string, 1)
	model := newEndpoint(t, once(bash("c1", "sleep 1000")))
	s := start(t, model, untilEnded(started))
	s.mayFail = true
	s.switchTo(policy.WorkspaceWrite)
	s.mu.Lock()
	err := s.log.Close()
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.desired.Messages = append(s.desired.Messages, wire.Message{UID: "m1", Content: "go"})
	if _, _, err := s.SetDesired(t.Context(), s.desired); err == nil {
		t.Error("a message was acknowledged that is not in the log")
	}
	if err := s.stop(); err == nil {
		t.Error("the agent ended as if nothing had happened")
	}
	if n := len(model.seen()) + len(s.rw.Starts()); n != 0 {
		t.Errorf("%d requests and calls came after it", n)
	}
}

// A volume of another session is refused, and a turn has an end.
func TestAVolumeOfAnotherSessionIsRefused(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.options.SessionUID = "another"
	if _, err := New(s.options); err == nil || !strings.Contains(err.Error(), "belongs to session") {
		t.Errorf("New() = %v", err)
	}
}

func TestATurnTakesOnlySoManySteps(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{calls: []chatCall{{"c", "none", `{}`}}} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	if got := s.say("m1", "go"); got.Reason != ReasonStepLimit || len(model.seen()) != MaxSteps {
		t.Errorf("the turn ended with %+v after %d requests", got, len(model.seen()))
	}
}

// An empty key file is a key that is missing; no file is an endpoint that wants none.
// A message waits for a key that is made later, and is then answered.
func TestAMissingKeyIsWaitedFor(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	s.desired.Config.Model.KeySecret = "model-key"
	s.switchTo(policy.ReadOnly)
	s.send("m1", "hello")
	s.await("the key is reported missing, by the name of its Secret", func(o wire.Observed) bool {
		return o.Activity.State == wire.Paused && slices.ContainsFunc(o.Problems, func(p wire.Problem) bool {
			return p.Reason == wire.ModelKeyMissing && strings.Contains(p.Message, "model-key")
		})
	})
	if n := len(model.seen()); n != 0 {
		t.Errorf("%d requests were made without the key", n)
	}
	if err := os.WriteFile(s.options.KeyFile, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.answered("m1")
	s.await("no problem is left", func(o wire.Observed) bool { return len(o.Problems) == 0 })
}

func TestAnEmptyKeyFile(t *testing.T) {
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "ok"} })
	s := start(t, model, nil)
	if err := os.WriteFile(filepath.Join(s.options.CtlDir, "apiKey"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.switchTo(policy.ReadOnly)
	s.say("m1", "go")
	if got := s.Observed(t.Context(), 0).Problems; len(got) != 1 || got[0].Reason != wire.ModelKeyMissing || len(model.seen()) != 0 {
		t.Errorf("problems: %+v after %d requests", got, len(model.seen()))
	}
}
