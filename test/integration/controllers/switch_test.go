// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
)

func TestASwitchIsConfirmedInTheFirstWriteOfItsGeneration(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	before := b.writes.Load()
	b.until("ModeApplied=True/Applied")
	s := b.session()
	if s.Status.ObservedGeneration != 2 || s.Status.Applied.Generation != 2 || s.Status.Applied.Mode != v1alpha1.ModeWorkspaceWrite {
		t.Errorf("after the switch: %+v", s.Status.Applied)
	}
	for _, c := range s.Status.Conditions {
		if c.ObservedGeneration != 2 {
			t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
	if n := b.writes.Load() - before; n > 2 {
		t.Errorf("the switch took %d writes: %q", n, b.written)
	}
	b.quiet()
}

func TestASlowAgentDrainsThenConfirms(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.agent.Drain()
	b.patchMode(v1alpha1.ModeReadOnly)
	b.until("ModeApplied=False/Draining")
	s := b.session()
	if s.Status.ObservedGeneration != 2 || s.Status.Applied.Mode != v1alpha1.ModeWorkspaceWrite || s.Status.Policy.Mode != v1alpha1.ModeReadOnly {
		t.Errorf("while it drains: applied %+v, policy %+v", s.Status.Applied, s.Status.Policy)
	}
	b.wants("Ready=False/Draining")
	b.agent.Confirm(3)
	b.until("ModeApplied=True/Applied")
	if a := b.session().Status.Applied; a.Mode != v1alpha1.ModeReadOnly || a.KilledProcesses != 3 {
		t.Errorf("after it drained: %+v", a)
	}
	b.quiet()
}

func TestThereAndBackIsANewConfirmation(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	release := b.agent.Hold()
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.patchMode(v1alpha1.ModeReadOnly) // generation 3, with the policy of generation 1
	b.step()
	b.wants("ModeApplied=False/Pending", "Ready=False/Pending")
	if s := b.session(); s.Status.Policy.Digest != s.Status.Applied.Digest || s.Status.ObservedGeneration != 3 {
		t.Errorf("policy %+v, applied %+v", s.Status.Policy, s.Status.Applied)
	}
	release()
	b.until("ModeApplied=True/Applied")
	if s := b.session(); s.Status.Applied.Generation != 3 {
		t.Errorf("applied %+v", s.Status.Applied)
	}
	b.quiet()
}

func TestTheCeilingClamps(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.until("ModeApplied=True/Clamped")
	s := b.session()
	if s.Status.Applied.Mode != v1alpha1.ModeReadOnly || len(s.Status.Policy.Clamped) != 1 || s.Status.Policy.Clamped[0].Requested != "workspace-write" {
		t.Errorf("clamped: applied %+v, policy %+v", s.Status.Applied, s.Status.Policy)
	}
	b.wants("Ready=True/Running", "Accepted=True/Accepted")
	b.quiet()
}

func TestTheCeilingRejects(t *testing.T) {
	b := newBench(t)
	b.class.Spec.Ceiling = v1alpha1.Ceiling{MaxMode: v1alpha1.ModeReadOnly, OnExceed: v1alpha1.OnExceedReject}
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.apply(v1alpha1.ModeWorkspaceWrite)
	if result := b.step(); result.RequeueAfter != 0 {
		t.Errorf("what somebody must change is tried again after %s", result.RequeueAfter)
	}
	b.wants("Accepted=False/ModeNotPermitted", "Ready=False/ModeNotPermitted", "Stalled=True/ModeNotPermitted")
	if b.pod() != nil || len(b.secrets()) != 0 {
		t.Error("something was created for a session that is not accepted")
	}
	b.quiet()
	b.patchMode(v1alpha1.ModeReadOnly)
	b.step()
	b.wants("Accepted=True/Accepted")
	if b.pod() == nil {
		t.Error("no pod although the session is accepted now")
	}
}

func TestAMissingClassIsTakenUpWhenItAppears(t *testing.T) {
	b := newBench(t)
	if err := admin.Delete(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.wants("Accepted=False/ClassNotFound", "Ready=False/ClassNotFound", "Stalled=True/ClassNotFound")
	if b.pod() != nil {
		t.Error("a pod was created without a class")
	}
	b.quiet()
	b.class = &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: b.class.Name}, Spec: b.class.Spec}
	b.create(b.class)
	b.step()
	b.wants("Accepted=True/Accepted", "Stalled=False/None")
}

func TestAnAgentWithANewerPolicyIsReplacedByName(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	newer := b.agent.Pushes()[0].Stamp
	newer.SessionGeneration = 9 // as after restoring the session from a backup
	b.agent.Force(newer, policy.Policy{})
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.until("ModeApplied=True/Applied")
	pushes := b.agent.Pushes()
	var named bool
	for _, d := range pushes {
		named = named || d.Replaces != nil && d.Replaces.SessionGeneration == 9
	}
	if !named {
		t.Error("no push named the stamp that it replaces")
	}
	if got := b.session().Status.Applied; got.Mode != v1alpha1.ModeWorkspaceWrite || got.Generation != 2 {
		t.Errorf("applied %+v", got)
	}
}
