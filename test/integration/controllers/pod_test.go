// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestALostPodEndsTheSession(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	m := b.say("late", "Are you there?")
	if err := admin.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.step()
	b.wants("Completed=True/StateLost", "Ready=False/StateLost", "RunnerReady=False/StateLost", "Stalled=True/StateLost")
	if b.session().Status.CompletionTime == nil {
		t.Error("no completion time")
	}
	if got := b.refresh(m, v1alpha1.ConditionDelivered); got != "False/SessionCompleted" {
		t.Errorf("the undelivered message is %s", got)
	}
	b.step()
	if b.pod() != nil {
		t.Error("a second pod was created")
	}
	b.quiet()
}

func TestAPodLostBeforeItsStartIsReplaced(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	first := b.pod()
	if err := admin.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.step()
	if second := b.pod(); second == nil || second.UID == first.UID {
		t.Fatalf("the pod was not replaced:\n%s", b.conditions())
	}
	b.start()
	b.until("Ready=True/Running")
}

func TestTheAgentsWordThatItsLogIsLostEndsTheSession(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	b.agent.Update(func(o *wire.Observed) {
		o.Boot, o.Revision, o.Applied = 2, 1, nil
		o.Problems = []wire.Problem{{Reason: wire.StateLost, Message: "status knows event 9, the log is empty"}}
	})
	b.setPod(func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].RestartCount++ }) // so that it is looked at
	b.until("Completed=True/StateLost")
	if p := b.pod(); p != nil && p.DeletionTimestamp == nil {
		t.Error("the pod of a finished session is left running")
	}
}

func TestAForeignPodIsNeitherUsedNorRemoved(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}}
	foreign.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
	b.create(foreign)
	// It is looked after quickly at first, and no more than once a minute in the long run.
	for at, want := range map[time.Duration]time.Duration{0: 2 * time.Second, 20 * time.Second: 20 * time.Second, time.Hour: time.Minute} {
		b.restart()
		b.step()
		b.forward(at)
		if got := b.step().RequeueAfter; got < want || got > want+5*time.Second {
			t.Errorf("after %s it looks again in %s, want %s", at, got, want)
		}
	}
	b.wants("RunnerReady=False/NameTaken", "Ready=False/NameTaken", "Stalled=True/NameTaken")
	if c := b.conditions(); !strings.Contains(c, "The pod "+foreign.Name+" does not belong to the session") {
		t.Errorf("the conditions do not name the pod:\n%s", c)
	}
	if p := b.pod(); p.UID != foreign.UID || p.DeletionTimestamp != nil || len(p.OwnerReferences) != 0 {
		t.Error("the foreign pod was touched")
	}
	if n := len(b.secrets()); n != 0 {
		t.Errorf("%d Secrets were made for nothing", n)
	}
	b.quiet()
	if err := admin.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.step()
	if p := b.pod(); p == nil || p.UID == foreign.UID {
		t.Error("no pod after the foreign one went")
	}
}

// Whoever may create pods can name the session as their owner, and copy labels. It is a foreign pod
// all the same, and is never spoken with.
func TestAPodThatClaimsToBeTheSessionsIsForeign(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	s := b.session()
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.PodName(s)}}
	foreign.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("AgentSession"))}
	foreign.Spec.Containers = []corev1.Container{{Name: "x", Image: "x", Args: []string{"--session-uid", string(s.UID)}}}
	b.create(foreign)
	b.step()
	b.wants("RunnerReady=False/NameTaken", "Ready=False/NameTaken", "Stalled=True/NameTaken")
	b.quiet()
}

// Also by an operator whose cache holds no foreign pods: it sees one when it is about to create
// its own, and that it has gone within seconds.
func TestAForeignPodIsNoticedComingAndGoing(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.apply(v1alpha1.ModeReadOnly)
	b.patch(`{"suspend":true}`)
	b.eventually("it is suspended", func() bool { return b.has("Suspended=True/Suspended") })
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}}
	foreign.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
	b.create(foreign)
	b.patch(`{"suspend":false}`)
	b.eventually("the foreign pod is told of", func() bool { return b.has("Stalled=True/NameTaken") })
	if err := admin.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.eventually("the session has its own", func() bool { p := b.pod(); return p != nil && p.UID != foreign.UID })
}

func TestAnImageThatCannotBePulled(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	pull := func(reason, message string) {
		b.setPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "tools-ro", Image: "tools:1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		})
	}
	pull("ErrImagePull", "not found")
	b.step()
	b.wants("RunnerReady=False/ImagePullFailed", "Ready=False/ImagePullFailed")
	before := b.writes.Load()
	pull("ImagePullBackOff", `Back-off pulling image "tools:1": ErrImagePull: not found`)
	b.step()
	if b.writes.Load() != before {
		t.Errorf("the kubelet's back-off changed the status:\n%s", b.conditions())
	}
}

func TestAQuotaRefusesThePod(t *testing.T) {
	b := newBench(t)
	b.create(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}})
	b.quotaInForce()
	b.apply(v1alpha1.ModeReadOnly)
	if result := b.step(); result.RequeueAfter < 30*time.Second {
		t.Errorf("tries again after %s: a hot loop", result.RequeueAfter)
	}
	b.wants("RunnerReady=False/PodRejected", "Ready=False/PodRejected", "Stalled=True/PodRejected")
	b.step()
	b.step()
	if n := len(b.secrets()); n != 1 {
		t.Errorf("%d link Secrets after three tries, want 1", n)
	}
}

// What a class names for its pods and the cluster does not have: the session says what to
// create, and goes on by itself once it is there.
func TestAClassNamesWhatTheClusterDoesNotHave(t *testing.T) {
	for name, tc := range map[string]struct {
		class *v1alpha1.AgentSessionClassSpec
		says  string
		exist client.Object
	}{
		"a runtime class": {&v1alpha1.AgentSessionClassSpec{RuntimeClassName: "not-there"},
			"Create the RuntimeClass not-there, or have runtimeClassName of class",
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "not-there"}, Handler: "runsc"}},
		"a priority class": {&v1alpha1.AgentSessionClassSpec{Scheduling: v1alpha1.Scheduling{PriorityClassName: "not-there"}},
			"Create the PriorityClass not-there, or have scheduling.priorityClassName of class",
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "not-there"}, Value: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
				c.RuntimeClassName, c.Scheduling = tc.class.RuntimeClassName, tc.class.Scheduling
			})
			b.apply(v1alpha1.ModeReadOnly)
			if result := b.step(); result.RequeueAfter < 30*time.Second {
				t.Errorf("tries again after %s: a hot loop", result.RequeueAfter)
			}
			b.wants("RunnerReady=False/PodRejected", "Ready=False/PodRejected", "Stalled=True/PodRejected")
			if got := b.conditions(); !strings.Contains(got, tc.says) {
				t.Errorf("nobody says %q:\n%s", tc.says, got)
			}
			if got := b.events(); !strings.Contains(got, "Warning PodRejected") || !strings.Contains(got, tc.says) {
				t.Errorf("no event says it: %q", got)
			}
			before := b.session()
			b.step()
			if b.session().ResourceVersion != before.ResourceVersion {
				t.Errorf("the same refusal is told in other words:\n%s\n%s", describe(before.Status.Conditions), b.conditions())
			}
			b.create(tc.exist)
			t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), tc.exist) })
			for range 200 { // admission learns of it a moment later
				if b.step(); b.pod() != nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			b.wants("Accepted=True/Accepted", "RunnerReady=False/PodPending", "Stalled=False/None")
		})
	}
}

// Where pods run is of their making: those that run stay, and say that the next will be
// another.
func TestSchedulingHoldsForPodsThatStartLater(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	first := b.pod()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.Scheduling.NodeSelector = map[string]v1alpha1.LabelValue{"agents": "only"}
	})
	b.step()
	b.wants("Ready=True/Running", "Outdated=True/InputsChanged")
	if p := b.pod(); p == nil || p.UID != first.UID || p.DeletionTimestamp != nil {
		t.Fatal("the pod was ended")
	}
	b.losePod()
	b.step()
	if p := b.pod(); p == nil || p.Spec.NodeSelector["agents"] != "only" {
		t.Errorf("the next pod is %+v", p)
	}
}

// quotaInForce sets the quota's status as its controller does, and waits until the apiserver uses it.
func (b *bench) quotaInForce() {
	b.t.Helper()
	var q corev1.ResourceQuota
	key := types.NamespacedName{Namespace: b.name.Namespace, Name: "none"}
	if err := admin.Get(b.t.Context(), key, &q); err != nil {
		b.t.Fatal(err)
	}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	if err := admin.Status().Update(b.t.Context(), &q); err != nil {
		b.t.Fatal(err)
	}
	for range 200 {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, GenerateName: "probe-"}}
		probe.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
		if err := admin.Create(b.t.Context(), probe, client.DryRunAll); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatal("the quota is not enforced")
}
