// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What the class gives to what runs reaches the supervisors, and the agent waits that much
// longer for them before it calls one overdue.
func TestTheGraceOfTheClass(t *testing.T) {
	const grace = 1
	narrows, hang := make(chan wire.Narrow, 1), make(chan struct{})
	started := make(chan string, 1)
	s := start(t, newEndpoint(t, once(bash("c1", "sleep 1000"))), untilEnded(started))
	defer close(hang)
	s.rw.BeforeNarrowed = func(n wire.Narrow) {
		if n.Epoch.Counter > 1 { // not the one of the boot
			narrows <- n
			<-hang
		}
	}
	s.switchTo(policy.WorkspaceWrite)
	s.send("m1", "run it")
	<-started
	s.desired.Config.GraceSeconds = grace
	begun := time.Now()
	s.push(policy.ReadOnly)
	if n := <-narrows; n.Grace != grace {
		t.Errorf("the narrowing's grace is %d s, want %d", n.Grace, grace)
	}
	o := s.await("tools-rw is overdue", func(o wire.Observed) bool { return slices.Contains(o.Overdue, wire.ToolsRW) })
	if waited := time.Since(begun); waited < narrowPatience+grace*time.Second {
		t.Errorf("the supervisor was called overdue after %v, within its grace", waited)
	}
	if !slices.Contains(o.Unconfirmed, wire.ToolsRW) {
		t.Errorf("unconfirmed is %v", o.Unconfirmed)
	}
	s.await("it is dropped", func(o wire.Observed) bool {
		return slices.ContainsFunc(o.Containers, func(c wire.Container) bool { return c.Name == wire.ToolsRW && !c.Connected })
	})
}

func TestAGraceBeyondLimitsIsRefused(t *testing.T) {
	s := start(t, newEndpoint(t, once(bash("c1", "true"))), nil)
	s.switchTo(policy.ReadOnly)
	for _, grace := range []int64{-1, wire.MaxGraceSeconds + 1} {
		d := s.desired
		d.Config.GraceSeconds = grace
		if _, _, err := s.SetDesired(t.Context(), d); err == nil {
			t.Errorf("a grace of %d s was taken", grace)
		}
	}
}
