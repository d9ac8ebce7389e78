// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestCreateBringsPodAndLinkSecret(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	p := b.pod()
	if p == nil || !metav1.IsControlledBy(p, b.session()) {
		t.Fatalf("the session's pod is %+v", p)
	}
	if s := b.secrets(); len(s) != 1 || s[0].Immutable == nil || !*s[0].Immutable || !metav1.IsControlledBy(&s[0], b.session()) {
		t.Errorf("want one immutable link Secret of the session, have %d", len(s))
	}
	b.wants("Accepted=True/Accepted", "RunnerReady=False/PodPending", "ModeApplied=False/Pending", "Ready=False/PodPending", "Stalled=False/None")
	if got := b.session().Status; got.ObservedGeneration != 1 || got.ClassName != b.class.Name || got.PodName != p.Name || got.StartTime != nil {
		t.Errorf("status %+v", got)
	}
	b.quiet()
}

func TestCreateToReadyTakesAtMostSixWrites(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	if n := b.writes.Load(); n > 6 {
		t.Errorf("%d writes: %q", n, b.written)
	}
	b.wants("RunnerReady=True/RunnerReady", "Enforced=True/Enforced", "ModeApplied=True/Applied", "Active=False/WaitingForInput", "Completed=False/Running")
	s := b.session().Status
	if s.Applied == nil || s.Applied.Mode != v1alpha1.ModeReadOnly || s.Applied.Generation != 1 || s.Applied.Digest != s.Policy.Digest || s.StartTime == nil {
		t.Errorf("applied %+v, policy %+v", s.Applied, s.Policy)
	}
	d := b.agent.Pushes()[0]
	if d.Config.Prompt != "Fix the build." || d.Config.SystemPrompt != "You are careful." || d.Config.Model.Name != "replay" {
		t.Errorf("the agent was given %+v", d.Config)
	}
	b.quiet()
	if n := len(b.agent.Pushes()); n != 1 {
		t.Errorf("%d pushes for one desired state", n)
	}
}

func TestTheAgentIsToldNothingBeforeItsStartIsDurable(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.start()
	durable := make(chan bool, 10)
	b.agent.OnPush(func(wire.Desired) { durable <- b.session().Status.StartTime != nil })
	b.until("Ready=True/Running")
	if !<-durable {
		t.Error("the first push came before status.startTime stood in the apiserver: after a crash between the two the prompt would run twice")
	}
}

func TestARestartedControllerTakesUpWhereTheLastOneWas(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.restart()
	b.quiet()
	b.patchMode(v1alpha1.ModeReadOnly)
	b.until("ModeApplied=True/Applied")

	// Nor does one take its own ignorance for trouble while the agent is slow to answer.
	release := b.agent.Hold()
	defer release()
	b.restart()
	b.quiet()
	b.wants("Ready=True/Running", "ModeApplied=True/Applied")
}

func TestADeletedSessionCreatesNothing(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	s := b.session()
	if err := admin.Delete(t.Context(), s, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	pod := types.NamespacedName{Namespace: b.name.Namespace, Name: podspec.PodName(s)}
	if err := admin.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.quiet()
	if err := admin.Get(t.Context(), pod, new(corev1.Pod)); err == nil {
		t.Error("a pod was created for a session that is going away")
	}
	s = b.session()
	s.Finalizers = nil
	if err := admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.quiet()
	// A new session of the same name is another one.
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	if name := podspec.PodName(b.session()); name == pod.Name || b.pod() == nil {
		t.Errorf("the new session's pod is %s", name)
	}
}
