// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Whoever hears of something that the agent does can rely on it: a policy and a message that were taken, a
// request that arrives, a call that starts. All that led to it is on disk by then.
func TestDurableBeforeVisible(t *testing.T) {
	var s *session
	durable := func(what string) {
		t.Helper()
		if head, committed := s.log.Head(), s.log.Committed(); head != committed {
			t.Errorf("%s is visible at event %d, and event %d is on disk", what, head.Seq, committed.Seq)
		}
	}
	model := newEndpoint(t, func(_ int, r chatRequest) reply {
		durable("a request")
		if r.lastSaid().Role == "tool" {
			return reply{text: "done"}
		}
		return reply{calls: []chatCall{bash("c1", "ls")}}
	})
	s = start(t, model, func(context.Context, wire.Start, func([]byte)) wire.Exited {
		durable("a call")
		return wire.Exited{Cause: wire.Finished}
	})
	s.switchTo(policy.ReadOnly)
	durable("a policy")
	s.say("m1", "go")
	durable("an answer")
	s.switchTo(policy.WorkspaceWrite)
	durable("another policy")
	if len(model.seen()) != 2 || len(s.ro.Starts()) != 1 {
		t.Errorf("%d requests and %d calls were seen", len(model.seen()), len(s.ro.Starts()))
	}
}
