// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// checkWrite checks one write of the controller.
func (m *machine) checkWrite(verb string, k objectKey, before, now client.Object) {
	m.newest = func() string { return fmt.Sprintf("%s of %s %s\n%s", verb, k.kind, k.Name, cmp.Diff(before, now)) }
	switch verb {
	case "create":
		if s := m.session(metav1.GetControllerOf(now).Name); k.kind != "NetworkPolicy" || s == nil || m.pod(s) == nil { // one that was deleted under a pod
			m.during.creates = append(m.during.creates, k)
		}
		if p, ok := now.(*corev1.Pod); ok {
			m.checkPod(p)
		}
	case "delete":
		m.during.deletes++
		m.checkDelete(before)
	case "status":
		m.during.statuses++
	}
	switch o := now.(type) {
	case *v1alpha1.AgentSession:
		if verb != "status" {
			m.t.Fatalf("%s of a session: its spec is the user's", verb)
		}
		m.checkStatus(before.(*v1alpha1.AgentSession), o)
	case *v1alpha1.SessionMessage:
		m.checkMessage(before.(*v1alpha1.SessionMessage), o)
	}
}

// checkPod checks that a pod may be created.
func (m *machine) checkPod(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	s := m.session(owner.Name)
	if s == nil || s.UID != owner.UID {
		return // its session went a moment ago; so does the pod
	}
	n := 0
	for _, other := range m.pods() {
		if metav1.IsControlledBy(other, s) {
			n++
		}
	}
	class, _ := m.acting.objects[m.key(&v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}})].(*v1alpha1.AgentSessionClass)
	switch claim := m.claimOf(p); {
	case class != nil && class.Spec.Egress != nil && (m.bound(s) == nil || m.bound(s).Spec.PodSelector.MatchLabels[podspec.LabelSessionUID] != p.Labels[podspec.LabelSessionUID]):
		m.t.Fatalf("a pod without its network policy")
	case n != 1:
		m.t.Fatalf("there are %d pods of one session", n)
	case claim == nil && s.Status.StartTime != nil:
		m.t.Fatalf("a second pod for a session whose log was in its first")
	case claim != nil && m.objects[*claim] == nil:
		m.t.Fatalf("a pod without its volume claim")
	case claim != nil && s.Status.StartTime != nil && len(m.logs[s.UID]) > 0 && m.claims[m.objects[*claim].GetUID()] != m.logs[s.UID][0]:
		m.t.Fatalf("a pod on another volume than the session's log is on")
	}
}

func (m *machine) checkDelete(o client.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		if metav1.GetControllerOf(o) == nil {
			m.t.Fatalf("a pod was deleted that belongs to somebody else")
		}
	case *v1alpha1.SessionMessage:
		if !isTrue(o.Status.Conditions, v1alpha1.ConditionAnswered) {
			m.t.Fatalf("a message was deleted that is not answered")
		}
	case *v1alpha1.AgentSession:
		if o.Spec.TTLSecondsAfterFinished == nil && (o.Spec.IdlePolicy == nil || o.Spec.IdlePolicy.DeleteAfterSeconds == nil) {
			m.t.Fatalf("a session was deleted that nobody wanted deleted")
		}
	case *corev1.PersistentVolumeClaim:
		m.t.Fatalf("a volume claim was deleted")
	case *networkingv1.NetworkPolicy:
		if !slices.ContainsFunc([]string{"a", "b"}, func(name string) bool { s := m.session(name); return s == nil || metav1.IsControlledBy(o, s) }) {
			m.t.Fatalf("a network policy was deleted that belongs to somebody else")
		}
	}
}

// checkStatus checks a status against itself, against the one before, and against the truth.
func (m *machine) checkStatus(was, s *v1alpha1.AgentSession) {
	is := func(condition string) bool { return isTrue(s.Status.Conditions, condition) }
	before, now := was.Status, s.Status
	fail := func(format string, args ...any) {
		m.t.Fatalf("contradiction: "+format+"\nbefore: %+v\nnow: %+v", append(args, before, now)...)
	}
	for _, c := range now.Conditions {
		if c.ObservedGeneration != now.ObservedGeneration || c.Reason == "" || c.Message == "" {
			fail("condition %s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
	applied := is(v1alpha1.ConditionModeApplied)
	completed := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionCompleted)
	done, succeeded := completed.Status == metav1.ConditionTrue, completed.Reason == v1alpha1.ReasonSucceeded
	switch {
	case now.ObservedGeneration < before.ObservedGeneration, now.ObservedGeneration > s.Generation:
		fail("observedGeneration %d at generation %d", now.ObservedGeneration, s.Generation)
	case is(v1alpha1.ConditionReady) && is(v1alpha1.ConditionStalled):
		fail("ready and stalled")
	case is(v1alpha1.ConditionReady) && !applied && !is(v1alpha1.ConditionSuspended) && !succeeded:
		fail("ready in no mode")
	case is(v1alpha1.ConditionReady) && !done && !is(v1alpha1.ConditionAccepted):
		fail("ready and not accepted")
	case applied && (now.Applied == nil || now.Policy == nil || now.Applied.Digest != now.Policy.Digest || now.Applied.Generation < now.ObservedGeneration):
		fail("applied is another policy")
	case applied && !m.confirmed(s):
		fail("no agent has confirmed that")
	case done && (applied || is(v1alpha1.ConditionRunnerReady) || is(v1alpha1.ConditionActive) || is(v1alpha1.ConditionSuspended) || now.CompletionTime == nil):
		fail("finished and still something else")
	case is(v1alpha1.ConditionSuspended) && m.pod(s) != nil:
		fail("suspended with a pod")
	case before.StartTime != nil && !before.StartTime.Equal(now.StartTime), before.CompletionTime != nil && !before.CompletionTime.Equal(now.CompletionTime):
		fail("a time changed")
	case before.ClassName != "" && before.ClassName != now.ClassName:
		fail("the class changed")
	case before.StartTime != nil && before.Storage != nil && *before.Storage != *now.Storage:
		fail("the storage changed")
	case m.ended[s.UID] != "" && m.ended[s.UID] != completed.Reason:
		fail("finished twice, first as %s", m.ended[s.UID])
	}
	if done {
		m.ended[s.UID] = completed.Reason
	}
}

// confirmed reports whether an agent of the session has confirmed what status says is applied.
func (m *machine) confirmed(s *v1alpha1.AgentSession) bool {
	return slices.ContainsFunc(m.logs[s.UID], func(l *agentLog) bool {
		return slices.ContainsFunc(l.confirmed, func(a wire.Applied) bool {
			return string(a.Digest) == s.Status.Applied.Digest && a.Stamp.SessionGeneration >= s.Status.ObservedGeneration
		})
	})
}

func (m *machine) checkMessage(before, now *v1alpha1.SessionMessage) {
	for _, c := range []string{v1alpha1.ConditionDelivered, v1alpha1.ConditionAnswered} {
		if isTrue(before.Status.Conditions, c) && !isTrue(now.Status.Conditions, c) {
			m.t.Fatalf("%s of message %s goes back", c, now.Name)
		}
	}
	if isTrue(now.Status.Conditions, v1alpha1.ConditionAnswered) && !isTrue(now.Status.Conditions, v1alpha1.ConditionDelivered) {
		m.t.Fatalf("message %s is answered and not delivered", now.Name)
	}
}

// pushed checks what an agent is told.
func (m *machine) pushed(e link.Endpoint, d wire.Desired) {
	s := m.session(e.Session.Name)
	if s == nil || string(s.UID) != e.SessionUID {
		return
	}
	if s.Status.StartTime == nil {
		m.t.Fatalf("an agent is told something before it is durable that it runs")
	}
	completed := isTrue(s.Status.Conditions, v1alpha1.ConditionCompleted)
	switch {
	case m.last != nil: // a controller that is behind
	case completed && (!d.Stop || len(d.Messages) > 0):
		m.t.Fatalf("an agent is told something after its session finished")
	case !completed && d.Stop:
		m.t.Fatalf("an agent is told to end the log of a session that goes on")
	case d.Stop && d.Suspend, d.Suspend && len(d.Messages) > 0:
		m.t.Fatalf("an agent whose pod is about to go is told %+v", d)
	}
	for _, told := range d.Messages {
		in := 0
		for _, log := range m.logs[s.UID] {
			if slices.ContainsFunc(log.messages, func(x wire.MessageStatus) bool { return x.UID == told.UID }) {
				in++
			}
		}
		if in > 1 {
			m.t.Fatalf("a message is in two logs of one session")
		}
	}
}

// checkReconcile checks one reconcile as a whole.
func (m *machine) checkReconcile(was, now *v1alpha1.AgentSession, err error) {
	if len(m.during.creates) == 0 || was == nil || now == nil || was.UID != now.UID || err != nil {
		return
	}
	if was.Status.CompletionTime != nil {
		m.t.Fatalf("created %v for a session that had finished", m.during.creates)
	}
	if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted); m.during.statuses > 0 && c != nil && c.Status == metav1.ConditionFalse {
		m.t.Fatalf("created %v for a session that is not accepted: %s", m.during.creates, c.Reason)
	}
}

// checkRest checks that a controller that starts anew finds nothing to do.
func (m *machine) checkRest() {
	if m.quota || m.foreigners() > 0 {
		// Under a quota each controller tries to create the pod, with a Secret of its own. Of a
		// pod that is not ours no watch tells: it is seen at the next look.
		return
	}
	m.restart(true)
	writes := m.writes
	for range 3 {
		for _, name := range []string{"a", "b"} {
			if s := m.session(name); s != nil {
				m.reconcile(m.r, nameOf(s))
			}
		}
		m.hear()
	}
	if m.writes != writes {
		m.t.Fatalf("a controller that starts anew in a world at rest writes %d times; the last write is %s", m.writes-writes, m.newest())
	}
	m.settle()
}

func (m *machine) foreigners() (n int) {
	for _, o := range m.objects {
		if p, ok := o.(*corev1.Pod); ok && metav1.GetControllerOf(p) == nil {
			n++
		}
	}
	return n
}

// heal takes away everything that is in the way but what people want.
func (m *machine) heal() {
	m.quota, m.skew = false, 0
	for uid := range m.stuck {
		delete(m.stuck, uid)
	}
	for _, k := range inOrder(m.objects) {
		if p, ok := m.objects[k].(*corev1.Pod); ok && metav1.GetControllerOf(p) == nil {
			m.drop(k)
		}
	}
	for _, p := range m.pods() {
		if p.Status.Phase == corev1.PodRunning {
			edit(m.store, p, func(p *corev1.Pod) {
				p.Status.Conditions = nil
				for i := range p.Status.ContainerStatuses {
					p.Status.ContainerStatuses[i].State = running()
				}
			})
		}
		if a := m.agents[p.UID]; a != nil {
			a.silent, a.drains, a.observed.Problems = false, false, nil
			for i := range a.observed.Containers {
				a.observed.Containers[i].Connected = true
			}
			a.confirm()
		}
	}
	m.advance(2 * time.Minute) // a pod that was refused is replaced after a minute
	for _, name := range []string{"a", "b"} {
		if s := m.session(name); s != nil {
			m.enqueue(nameOf(s)) // the agent's link would wake it
		}
	}
}

// checkHealed checks that every session ended where its spec says.
func (m *machine) checkHealed() {
	for _, name := range []string{"a", "b"} {
		if s := m.session(name); s != nil {
			m.checkEnd(s)
		}
	}
}

func (m *machine) checkEnd(s *v1alpha1.AgentSession) {
	has := func(condition, status, reason string) {
		c := meta.FindStatusCondition(s.Status.Conditions, condition)
		if c == nil || string(c.Status) != status || reason != "" && c.Reason != reason {
			m.t.Fatalf("session %s should have %s=%s/%s, has %+v\nstatus: %+v", s.Name, condition, status, reason, c, s.Status)
		}
	}
	if s.Status.ObservedGeneration != s.Generation {
		m.t.Fatalf("status is of generation %d, not %d", s.Status.ObservedGeneration, s.Generation)
	}
	pod, class := m.pod(s), m.class()
	started, suspends := s.Status.StartTime != nil, s.Spec.Suspend
	persistent := class != nil && podspec.Storage(s, class).Type == v1alpha1.StoragePersistentVolumeClaim
	idles := s.Spec.IdlePolicy != nil && s.Spec.IdlePolicy.SuspendAfterSeconds != nil
	switch {
	case s.Status.CompletionTime != nil:
		has(v1alpha1.ConditionCompleted, "True", "")
		if pod != nil && pod.DeletionTimestamp == nil && !ended(pod) {
			m.t.Fatalf("a finished session has a pod")
		}
	case class == nil || s.Spec.ClassName == "" && s.Status.ClassName == "" && class.Annotations[v1alpha1.DefaultClassAnnotation] != "true":
		has(v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonClassNotFound)
		has(v1alpha1.ConditionStalled, "True", v1alpha1.ReasonClassNotFound)
	case class.Spec.Ceiling.OnExceed == v1alpha1.OnExceedReject &&
		(wider(s.Spec.Sandbox.Mode, class.Spec.Ceiling.MaxMode) || s.Spec.Sandbox.Network == v1alpha1.NetworkOpen && !opens(s, class)):
		has(v1alpha1.ConditionAccepted, "False", "")
	case s.Spec.Model != nil && s.Status.Model == "" && len(class.Spec.Model.AllowedNames) == 0:
		has(v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonModelNotAllowed)
	case !persistent && (idles || started && suspends):
		has(v1alpha1.ConditionSuspended, "False", v1alpha1.ReasonStorageNotPersistent)
	case suspends:
		has(v1alpha1.ConditionSuspended, "True", "")
		has(v1alpha1.ConditionReady, "True", "")
	case isTrue(s.Status.Conditions, v1alpha1.ConditionSuspended):
		has(v1alpha1.ConditionSuspended, "True", v1alpha1.ReasonIdle)
		has(v1alpha1.ConditionReady, "True", "")
		m.checkDelivered(s)
	default:
		m.checkBound(s, class)
		has(v1alpha1.ConditionReady, "True", v1alpha1.ReasonRunning)
		has(v1alpha1.ConditionModeApplied, "True", "")
		want := m.lowest(s, class, pod)
		if got := m.agents[pod.UID].inForce.Mode; got != want || string(s.Status.Applied.Mode) != want.String() {
			m.t.Fatalf("session %s: %s is in force and status says %s, want %s", s.Name, got, s.Status.Applied.Mode, want)
		}
		m.checkDelivered(s)
	}
}

// checkBound checks that a session that runs is bounded as its class says.
func (m *machine) checkBound(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) {
	n, egress := m.bound(s), class.Spec.Egress
	if (n != nil) != (egress != nil) {
		m.t.Fatalf("session %s has the network policy %+v, and its class %+v", s.Name, n, egress)
	}
	if egress == nil {
		return
	}
	want, err := podspec.Typed[networkingv1.NetworkPolicy](podspec.NetworkPolicy(podspec.Input{Session: s, Class: class}, m.r.Operator, opens(s, class)))
	if err != nil {
		m.t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec, n.Spec); diff != "" || n.Labels[podspec.LabelSession] != s.Name {
		m.t.Fatalf("the network policy of session %s, with the labels %v (-want +got):\n%s", s.Name, n.Labels, diff)
	}
}

func opens(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) bool {
	return s.Spec.Sandbox.Network == v1alpha1.NetworkOpen && class.Spec.Ceiling.MaxNetwork == v1alpha1.NetworkOpen
}

func (m *machine) checkDelivered(s *v1alpha1.AgentSession) {
	for _, message := range m.messages() {
		if message.Spec.SessionName == s.Name && !isTrue(message.Status.Conditions, v1alpha1.ConditionDelivered) && !sessionOver(message) {
			m.t.Fatalf("message %s was not delivered: %+v", message.Name, message.Status)
		}
	}
}

func wider(a, b v1alpha1.SandboxMode) bool { return slices.Index(modes, a) > slices.Index(modes, b) }

// lowest is the mode that spec, class, namespace and pod leave.
func (m *machine) lowest(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass, pod *corev1.Pod) policy.Mode {
	at := min(slices.Index(modes, s.Spec.Sandbox.Mode), slices.Index(modes, class.Spec.Ceiling.MaxMode))
	if label, ok := m.objects[m.key(namespaceObject("ns"))].GetLabels()[v1alpha1.MaxModeLabel]; ok {
		at = min(at, max(0, slices.Index(modes, v1alpha1.SandboxMode(label))))
	}
	if len(pod.Spec.Containers) == 1 {
		at = 0
	}
	return policy.Modes()[at]
}
