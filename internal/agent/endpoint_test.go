// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync/atomic"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
)

// watched is a provider whose end is seen.
type watched struct {
	model.Connected
	closed atomic.Int32
}

func (w *watched) Close() {
	w.closed.Add(1)
	w.Connected.Close()
}

func (s *session) watchProvider() *watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watched{Connected: s.provider}
	s.provider = w
	return w
}

// A class that names another endpoint reaches a running session with its next request. The connections to
// the old one are closed then, and those to the new one with the agent.
func TestAnotherEndpointEndsTheOldConnections(t *testing.T) {
	first := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "first"} })
	second := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "second"} })
	s := start(t, first, nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "go")
	old := s.watchProvider()
	s.desired.Config.Model.BaseURL = second.URL + "/v1"
	if got := s.say("m2", "go on"); got.Reply != "second" || len(first.seen()) != 1 || old.closed.Load() != 1 {
		t.Errorf("the message is %+v after %d requests to the first endpoint, which was closed %d times", got, len(first.seen()), old.closed.Load())
	}
	next := s.watchProvider()
	s.say("m3", "go on")
	if next.closed.Load() != 0 {
		t.Error("an endpoint that stays was closed")
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if next.closed.Load() != 1 {
		t.Error("the agent has ended and its connections are open")
	}
}
