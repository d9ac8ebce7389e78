// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// persist gives the bench's class storage that outlives pods.
func (b *bench) persist(r v1alpha1.Retention) {
	b.t.Helper()
	b.class.Spec.Storage = &v1alpha1.ClassStorage{Retention: r, Storage: v1alpha1.Storage{
		Type: v1alpha1.StoragePersistentVolumeClaim, Size: new(resource.MustParse("64Mi")), StorageClassName: "fast",
	}}
	if err := admin.Update(b.t.Context(), b.class); err != nil {
		b.t.Fatal(err)
	}
}

// patch does what kubectl patch does to the spec.
func (b *bench) patch(spec string) {
	b.t.Helper()
	if err := admin.Patch(b.t.Context(), b.session(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":%s}`, spec))); err != nil {
		b.t.Fatalf("patching the spec: %v", err)
	}
}

// claim returns the session's volume claim; nil when there is none.
func (b *bench) claim() *corev1.PersistentVolumeClaim {
	b.t.Helper()
	var c corev1.PersistentVolumeClaim
	err := admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.name.Namespace, Name: podspec.ClaimName(b.session())}, &c)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatalf("reading the claim: %v", err)
	}
	if err != nil {
		return nil
	}
	return &c
}

// bind does what the scheduler does: a pod on a node ends in two steps.
func (b *bench) bind() {
	b.t.Helper()
	err := admin.SubResource("binding").Create(b.t.Context(), b.pod(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}})
	if err != nil {
		b.t.Fatalf("binding the pod: %v", err)
	}
}

// losePod removes the pod and its agent from the world.
func (b *bench) losePod() {
	b.t.Helper()
	b.mu.Lock()
	if b.agent != nil {
		b.agent.Stop()
		b.agent = nil
	}
	b.mu.Unlock()
	if err := admin.Delete(b.t.Context(), b.pod(), client.GracePeriodSeconds(0)); err != nil {
		b.t.Fatal(err)
	}
}

// loseClaim removes the claim, as its protection does once no pod uses it.
func (b *bench) loseClaim() {
	b.t.Helper()
	c := b.claim()
	if err := admin.Delete(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
	if err := admin.Patch(b.t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		b.t.Fatal(err)
	}
}

// deliver steps until the agent has a message.
func (b *bench) deliver(m *v1alpha1.SessionMessage) {
	b.t.Helper()
	for b.step(); b.refresh(m, v1alpha1.ConditionDelivered) != "True/Delivered"; b.step() {
		select {
		case <-b.woken:
		case <-time.After(20 * time.Second):
			b.t.Fatalf("message %s is not delivered", m.Name)
		}
	}
}

func TestASuspendedSessionKeepsItsStateAndGoesOn(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.bind()
	c := b.claim()
	if c == nil || !metav1.IsControlledBy(c, b.session()) || *c.Spec.StorageClassName != "fast" {
		t.Fatalf("the session's claim is %+v", c)
	}
	if s := b.session().Status.Storage; s == nil || s.ClaimName != c.Name {
		t.Errorf("status.storage %+v, want %s", s, c.Name)
	}
	work := b.say("work", "Work.")
	b.deliver(work)
	b.agent.Update(func(o *wire.Observed) {
		o.Log = wire.LogHead{Seq: 9, Digest: "aa"}
		o.Activity.State = wire.InTurn
	})
	b.until("Active=True/InTurn")
	first := b.pod()

	b.patch(`{"suspend":true}`)
	b.step()
	b.wants("Suspended=False/PodTerminating", "Ready=False/PodTerminating")
	if p := b.pod(); p == nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds == 0 {
		t.Fatalf("the pod is not asked to end by itself: %+v", p)
	}
	b.quiet()
	b.losePod()
	b.step()
	b.wants("Suspended=True/Suspended", "Ready=True/Suspended", "RunnerReady=False/Suspended", "ModeApplied=False/Suspended", "Active=False/Suspended", "Completed=False/Running")
	if n := len(b.secrets()); b.session().Status.PodName != "" || n != 0 {
		t.Errorf("podName %q and %d link Secrets while suspended", b.session().Status.PodName, n)
	}
	m := b.say("later", "Go on.")
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.step()
	b.wants("Suspended=True/Suspended", "ModeApplied=False/Suspended")
	b.quiet()
	if b.pod() != nil {
		t.Fatal("a suspended session has a pod")
	}

	b.patch(`{"suspend":false}`)
	b.step()
	b.wants("Suspended=False/NotRequested", "Ready=False/PodPending")
	if second := b.pod(); second == nil || second.UID == first.UID {
		t.Fatalf("no new pod; conditions:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
	b.deliver(m)
	push := b.agent.Pushes()[0]
	if push.LogHead != (wire.LogHead{Seq: 10, Digest: "aa"}) || b.session().Status.Applied.Mode != v1alpha1.ModeWorkspaceWrite {
		t.Errorf("the new agent was told of the log %+v", push.LogHead)
	}
	if b.claim().UID != c.UID {
		t.Error("the claim was replaced")
	}
	b.quiet()
}

func TestALostPodOnAVolumeIsReplaced(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	first := b.pod()
	b.losePod()
	b.step()
	b.wants("Completed=False/Running", "ModeApplied=False/Pending")
	if second := b.pod(); second == nil || second.UID == first.UID {
		t.Fatalf("the pod was not replaced:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
	b.quiet()
}

func TestALostVolumeEndsTheSession(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	b.losePod()
	b.loseClaim()
	b.step()
	b.wants("Completed=True/StateLost", "Ready=False/StateLost", "Stalled=True/StateLost")
	if b.pod() != nil || b.claim() != nil {
		t.Error("something was created for a session whose log is gone")
	}
	b.quiet()
}

func TestARetainedVolumeHasNoOwner(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionRetain)
	b.ready(v1alpha1.ModeReadOnly)
	c := b.claim()
	if c == nil || len(c.OwnerReferences) != 0 {
		t.Fatalf("the claim is %+v", c)
	}
	b.losePod()
	b.step()
	if b.pod() == nil {
		t.Errorf("the session does not take its claim for its own:\n%s", b.conditions())
	}
	// Nor does a later session of the same name.
	b.losePod()
	if err := admin.Delete(t.Context(), b.session()); err != nil {
		t.Fatal(err)
	}
	b.step()
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	if second := b.claim(); second == nil || second.UID == c.UID {
		t.Errorf("the second session's claim is %+v", second)
	}
}

func TestAForeignVolumeIsNeitherUsedNorRemoved(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.apply(v1alpha1.ModeReadOnly)
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.ClaimName(b.session())}}
	foreign.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	foreign.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	b.create(foreign)
	if result := b.step(); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	b.wants("RunnerReady=False/NameTaken", "Stalled=True/NameTaken")
	if c := b.claim(); b.pod() != nil || c.UID != foreign.UID || c.DeletionTimestamp != nil {
		t.Error("the foreign claim was used or touched")
	}
	b.quiet()
}

func TestASessionWithoutAVolumeIsNotSuspended(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.patch(`{"suspend":true}`)
	b.until("ModeApplied=True/Applied")
	b.wants("Suspended=False/StorageNotPersistent", "Ready=False/StorageNotPersistent", "Stalled=True/StorageNotPersistent")
	if p := b.pod(); p == nil || p.DeletionTimestamp != nil {
		t.Error("the pod was removed, and the log with it")
	}
	b.patch(`{"suspend":false}`)
	b.until("Ready=True/Running")
	b.quiet()
}

// Suspend and resume in any haste: never two pods, never a stuck session.
func TestHastySuspendAndResume(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.apply(v1alpha1.ModeReadOnly)
	b.patch(`{"suspend":true}`)
	b.step()
	b.wants("Suspended=True/Suspended")
	if b.pod() != nil || b.claim() != nil {
		t.Error("something was created for a session that is suspended from the start")
	}
	b.patch(`{"suspend":false}`)
	b.step()
	b.bind()
	b.start()
	b.until("Ready=True/Running")
	b.patch(`{"suspend":true}`)
	b.step()
	b.patch(`{"suspend":false}`) // the pod is going away already
	b.step()
	b.wants("Ready=False/PodTerminating", "Suspended=False/NotRequested")
	first := b.pod()
	b.losePod()
	b.step()
	if second := b.pod(); second == nil || second.UID == first.UID {
		t.Fatalf("no new pod:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
}

// A class that changes under a session moves neither its log nor its fate.
func TestTheStorageOfASessionStaysWhatItIs(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.persist(v1alpha1.RetentionDelete)
	b.losePod()
	b.step()
	b.wants("Completed=True/StateLost")
	if b.claim() != nil {
		t.Error("an empty volume took the place of the log")
	}
}
