// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// The agent is told before its pod goes, and what it says last is kept.
func TestTheAgentFinishesItsLogBeforeThePodGoes(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.bind()
	b.agent.NeverSettle()
	b.patch(`{"suspend":true}`)
	if result := b.step(); result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Errorf("looks again after %s, want within the agent's 10 s", result.RequeueAfter)
	}
	b.wants("Suspended=False/PodTerminating")
	if p := b.pod(); p.DeletionTimestamp != nil {
		t.Error("the pod is deleted before its agent is ready for it")
	}
	if d := b.agent.Pushes()[len(b.agent.Pushes())-1]; !d.Suspend || d.Stop {
		t.Errorf("the agent was pushed %+v", d)
	}
	b.quiet()
	// It does not go back: the agent starts nothing any more.
	b.patch(`{"suspend":false}`)
	b.step()
	if d := b.agent.Pushes()[len(b.agent.Pushes())-1]; !d.Suspend {
		t.Error("an agent that was told that its pod goes is told otherwise")
	}
	// It never answers as it should: its time ends.
	b.r.Now = func() time.Time { return time.Now().Add(11 * time.Second) }
	b.step()
	if p := b.pod(); p.DeletionTimestamp == nil {
		t.Error("the pod outlives its agent's time")
	}
}

func TestAnAgentThatHasSettledIsNotForgottenByTheNextController(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.bind()
	b.agent.NeverSettle()
	b.patch(`{"suspend":true}`)
	b.step()
	b.patch(`{"suspend":false}`)
	b.restart()
	b.agent.Update(func(o *wire.Observed) { o.Settled = true })
	for b.step(); b.pod().DeletionTimestamp == nil; b.step() {
		select {
		case <-b.woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("a pod stays whose agent starts nothing any more:\n%s", b.conditions())
		}
	}
}

func TestTheAgentEndsItsLogWhenTheSessionIsFinished(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.bind()
	b.agent.Update(func(o *wire.Observed) { o.Log = wire.LogHead{Seq: 7, Digest: "aa"} })
	b.patch(`{"activeDeadlineSeconds":1}`)
	b.r.Now = func() time.Time { return time.Now().Add(5 * time.Second) }
	for b.step(); b.pod().DeletionTimestamp == nil; b.step() {
		select {
		case <-b.woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("the pod stays:\n%s", b.conditions())
		}
	}
	b.wants("Completed=True/DeadlineExceeded")
	if d := b.agent.Pushes()[len(b.agent.Pushes())-1]; !d.Stop || d.Suspend || len(d.Messages) != 0 {
		t.Errorf("the agent was pushed %+v", d)
	}
	if got := b.session().Status.Log; got == nil || got.LastSeq != 8 {
		t.Errorf("status.log is %+v, want the log's end, event 8", got)
	}
}
