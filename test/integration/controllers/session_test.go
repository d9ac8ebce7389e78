// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
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
		o.Problems = []wire.Problem{{Reason: wire.StateLost, Message: "status knows event 9, the log is empty"}}
	})
	b.until("Completed=True/StateLost")
	if p := b.pod(); p != nil && p.DeletionTimestamp == nil {
		t.Error("the pod of a finished session is left running")
	}
}

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

func TestAForeignPodIsNeitherUsedNorRemoved(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}}
	foreign.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
	b.create(foreign)
	if result := b.step(); result.RequeueAfter < 30*time.Second {
		t.Errorf("looks again after %s: a hot loop", result.RequeueAfter)
	}
	b.wants("RunnerReady=False/NameTaken", "Ready=False/NameTaken", "Stalled=True/NameTaken")
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
