// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// forward sets the controller's clock.
func (b *bench) forward(d time.Duration) {
	b.r.Now = func() time.Time { return time.Now().Add(d) }
}

func (b *bench) deleted() bool {
	b.t.Helper()
	err := admin.Get(b.t.Context(), b.name, new(v1alpha1.AgentSession))
	if err != nil && !apierrors.IsNotFound(err) {
		b.t.Fatal(err)
	}
	return err != nil
}

// answer has the agent answer all that it was given.
func (b *bench) answer(reason string) {
	b.t.Helper()
	b.agent.Update(func(o *wire.Observed) {
		o.Activity = wire.Activity{State: wire.Idle, Turns: uint64(len(o.Messages))}
		for i := range o.Messages {
			o.Messages[i].State, o.Messages[i].Reply, o.Messages[i].Reason = wire.Answered, "Done.", reason
		}
	})
}

func TestAnIdleSessionIsSuspendedResumedAndDeleted(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.patch(`{"idlePolicy":{"suspendAfterSeconds":600,"deleteAfterSeconds":6000}}`)
	b.until("ModeApplied=True/Applied")
	if after := b.step().RequeueAfter; after < 590*time.Second || after > 600*time.Second {
		t.Errorf("looks again after %s, want just under 600 s", after)
	}
	b.forward(601 * time.Second)
	b.step() // no node, no grace: the pod is gone at once
	b.step()
	b.wants("Suspended=True/Idle", "Ready=True/Suspended")
	if after := b.step().RequeueAfter; b.pod() != nil || after < 5300*time.Second || after > 5400*time.Second {
		t.Errorf("looks again after %s, want at deleteAfterSeconds", after)
	}
	b.quiet()

	m := b.say("wake", "Are you there?")
	b.step()
	b.wants("Suspended=False/NotRequested")
	if b.pod() == nil {
		t.Fatalf("the message brings no pod:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
	b.deliver(m)
	b.answer("Completed")
	for b.refresh(m, v1alpha1.ConditionAnswered) != "True/Answered" {
		<-b.woken
		b.step()
	}
	b.step()
	b.wants("Suspended=False/NotRequested", "Ready=True/Running")

	b.forward(7000 * time.Second)
	b.step()
	if !b.deleted() {
		t.Errorf("the session is not deleted:\n%s", b.conditions())
	}
}

func TestASessionSucceedsOnceItsSendersAreTold(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	m := b.say("only", "Do it.")
	b.deliver(m)
	b.patch(`{"completion":"WhenIdle","ttlSecondsAfterFinished":60}`)
	b.until("ModeApplied=True/Applied")
	b.wants("Completed=False/Running")
	b.answer("Completed")
	b.until("Completed=True/Succeeded")
	b.wants("Ready=True/Succeeded", "Stalled=False/None", "RunnerReady=False/Succeeded")
	if got := b.refresh(m, v1alpha1.ConditionAnswered); got != "True/Answered" || m.Status.Reply != "Done." {
		t.Errorf("the message is %s, reply %q", got, m.Status.Reply)
	}
	if p := b.pod(); p != nil && p.DeletionTimestamp == nil {
		t.Error("the pod of a finished session is left running")
	}
	late := b.say("late", "One more.")
	if after := b.step().RequeueAfter; after < 50*time.Second || after > 60*time.Second {
		t.Errorf("looks again after %s, want at ttlSecondsAfterFinished", after)
	}
	if got := b.refresh(late, v1alpha1.ConditionDelivered); got != "False/SessionCompleted" {
		t.Errorf("a message to a finished session is %s", got)
	}
	b.quiet()
	b.forward(61 * time.Second)
	b.step()
	if !b.deleted() {
		t.Error("the session outlives its ttlSecondsAfterFinished")
	}
}

func TestASessionFailsWithItsLastTurn(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	m := b.say("only", "Do it.")
	b.deliver(m)
	b.patch(`{"completion":"WhenIdle"}`)
	b.step()
	b.answer("ModelFailed")
	b.until("Completed=True/Failed")
	b.wants("Ready=False/Failed", "Stalled=True/Failed")
	if got := b.refresh(m, v1alpha1.ConditionAnswered); got != "True/TurnFailed" {
		t.Errorf("the message is %s", got)
	}
}

func TestTheDeadlineEndsTheSession(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.patch(`{"activeDeadlineSeconds":600}`)
	b.until("ModeApplied=True/Applied")
	if after := b.step().RequeueAfter; after < 580*time.Second || after > 600*time.Second {
		t.Errorf("looks again after %s, want at the deadline", after)
	}
	b.forward(601 * time.Second)
	b.step()
	b.wants("Completed=True/DeadlineExceeded", "Ready=False/DeadlineExceeded", "RunnerReady=False/DeadlineExceeded")
	if p := b.pod(); p != nil && p.DeletionTimestamp == nil {
		t.Error("the pod of a finished session is left running")
	}
	b.quiet()
}

func TestAnOutdatedPodIsReplacedWhenIdle(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.wants("Outdated=False/Current")
	b.class.Spec.Images.Tools, b.class.Spec.UpdateStrategy = "tools:2", v1alpha1.UpdateOnRestart
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.until("ModeApplied=True/Applied")
	b.wants("Outdated=True/InputsChanged", "Ready=True/Running")
	b.quiet()
	first := b.pod()
	b.class.Spec.UpdateStrategy = v1alpha1.UpdateWhenIdle
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.forward(2 * time.Minute)
	b.step()
	b.step()
	second := b.pod()
	if second == nil || second.UID == first.UID || second.Spec.Containers[0].Image != "tools:2" {
		t.Fatalf("the pod was not replaced:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
	b.wants("Outdated=False/Current")
	b.forward(10 * time.Minute)
	b.quiet()
}

func TestAnsweredMessagesAreRemovedBeyondTheHistory(t *testing.T) {
	b := newBench(t)
	b.class.Spec.History.Messages = new(int32(1))
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.ready(v1alpha1.ModeReadOnly)
	first, second := b.say("a", "one"), b.say("b", "two")
	b.deliver(second)
	b.answer("Completed")
	for b.refresh(second, v1alpha1.ConditionAnswered) != "True/Answered" {
		<-b.woken
		b.step()
	}
	b.step()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(first), first); !apierrors.IsNotFound(err) {
		t.Errorf("the older message is still there: %v", err)
	}
	if got := b.refresh(second, v1alpha1.ConditionAnswered); got != "True/Answered" {
		t.Errorf("the newest message is %s", got)
	}
	b.quiet()
}
