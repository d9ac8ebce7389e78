// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// What a session wants of its turns reaches the agent: at its start, and again when it changes.
func TestLimitsAndInterruptionsReachTheAgent(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	if c := b.agent.Pushes()[0].Config; c.RuntimeContext != wire.RuntimeContextEnabled || c.Limits != (wire.SessionLimits{}) {
		t.Errorf("the agent was given %+v", c)
	}
	s := b.session()
	if err := admin.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"limits":{"maxTurns":3}}}`))); err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: "urgent"}}
	m.Spec.SessionName, m.Spec.Content, m.Spec.Author, m.Spec.Interrupt = b.name.Name, "Stop!", "ann", true
	b.create(m)
	b.step()
	for b.refresh(m, v1alpha1.ConditionDelivered) != "True/Delivered" {
		<-b.woken
		b.step()
	}
	var interrupts, limited bool
	for _, d := range b.agent.Pushes() {
		limited = limited || d.Config.Limits.MaxTurns == 3
		interrupts = interrupts || len(d.Messages) == 1 && d.Messages[0].Interrupt && d.Messages[0].Author == "ann"
	}
	if !limited || !interrupts {
		t.Errorf("limited: %v, interrupts: %v", limited, interrupts)
	}
	b.agent.Update(func(o *wire.Observed) {
		last := &o.Messages[len(o.Messages)-1]
		last.State, last.Turn, last.Reply, last.Reason = wire.Answered, 4, "The session may take 3 turns.", "TurnLimit"
	})
	for b.refresh(m, v1alpha1.ConditionAnswered) != "True/LimitReached" {
		<-b.woken
		b.step()
	}
	b.quiet()
}

// How a turn ended is told to the sender in the reason.
func TestHowATurnEndedIsTold(t *testing.T) {
	for reason, want := range map[string]string{
		"Completed": "True/Answered", "Cancelled": "True/Cancelled", "TurnLimit": "True/LimitReached", "ModelFailed": "True/TurnFailed",
	} {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			b.ready(v1alpha1.ModeReadOnly)
			m := b.say("m", "Go on.")
			b.deliver(m)
			b.agent.Update(func(o *wire.Observed) {
				o.Messages[0].State, o.Messages[0].Turn, o.Messages[0].Reason = wire.Answered, 1, reason
			})
			for b.step(); b.refresh(m, v1alpha1.ConditionAnswered) != want; b.step() {
				select {
				case <-b.woken:
				case <-time.After(20 * time.Second):
					t.Fatalf("the message is %s, want %s", b.refresh(m, v1alpha1.ConditionAnswered), want)
				}
			}
		})
	}
}
