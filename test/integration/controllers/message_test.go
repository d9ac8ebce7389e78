// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestMessagesAreDeliveredOnceAndAnswered(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	first, second := b.say("z-first", "one"), b.say("a-second", "two")
	b.step()
	for b.refresh(second, v1alpha1.ConditionDelivered) != "True/Delivered" {
		<-b.woken
		b.step()
	}
	pushes := b.agent.Pushes()
	if m := pushes[len(pushes)-1].Messages; len(m) != 2 || m[0].Content != "one" || m[1].Content != "two" {
		t.Errorf("delivered %+v, want both in the order of their creation", m)
	}
	if got := b.refresh(first, v1alpha1.ConditionAnswered); got != "False/Pending" || first.Status.Sequence == 0 {
		t.Errorf("the first message is %s, sequence %d", got, first.Status.Sequence)
	}
	if len(first.OwnerReferences) != 1 || first.OwnerReferences[0].UID != b.session().UID {
		t.Errorf("owners of a delivered message: %+v", first.OwnerReferences)
	}
	b.agent.Update(func(o *wire.Observed) {
		for i := range o.Messages {
			o.Messages[i].State, o.Messages[i].Turn, o.Messages[i].Reply, o.Messages[i].Reason = wire.Answered, uint64(i+1), "done", "Completed"
		}
		o.Messages[len(o.Messages)-1].Reason = "ModelFailed"
	})
	for b.refresh(second, v1alpha1.ConditionAnswered) != "True/TurnFailed" {
		<-b.woken
		b.step()
	}
	if got := b.refresh(first, v1alpha1.ConditionAnswered); got != "True/Answered" || first.Status.Reply != "done" {
		t.Errorf("the first message is %s, reply %q", got, first.Status.Reply)
	}
	b.step()
	pushes = b.agent.Pushes()
	if m := pushes[len(pushes)-1].Messages; len(m) != 0 {
		t.Errorf("%d messages are pushed again", len(m))
	}
	b.quiet()
}

func TestAMessageToNoSessionWaitsForOne(t *testing.T) {
	b := newBench(t)
	m := b.say("early", "Hello?")
	b.step()
	if got := b.refresh(m, v1alpha1.ConditionDelivered); got != "False/SessionNotFound" {
		t.Fatalf("the message is %s", got)
	}
	b.quiet()
	b.ready(v1alpha1.ModeReadOnly)
	b.step()
	if got := b.refresh(m, v1alpha1.ConditionDelivered); got != "True/Delivered" {
		t.Errorf("the message is %s after its session came", got)
	}
}
