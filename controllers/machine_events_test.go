// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// happenings are what may happen between two looks of the controller. Those that let it
// work stand several times.
var happenings = []string{
	"work", "work", "work", "work", "see", "see", "see", "see", "hear", "hear", "hear", "kubelet", "kubelet", "kubelet",
	"create", "create", "delete", "mode", "mode", "mode", "network", "network", "bound", "suspend", "suspend", "times", "class", "class", "label", "label",
	"message", "message", "message", "answer", "answer", "answer", "unsay", "silence", "drain", "problem", "reboot", "force", "container",
	"pod", "pod", "pod", "foreign", "claim", "quota", "clock", "clock", "clock", "skew", "restart", "deposed", "fault", "fault", "collect",
}

var modes = []v1alpha1.SandboxMode{v1alpha1.ModeReadOnly, v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeDangerFullAccess}

func draw[T any](m *machine, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(m.t, label)
}

func (m *machine) happen(event string) {
	s := m.session(draw(m, "session", "a", "b"))
	switch event {
	case "work":
		m.work()
	case "see":
		m.see(draw(m, "kind", watched...))
	case "hear":
		m.hear()
	case "kubelet":
		m.kubelet()
	case "collect":
		m.collect()
	case "create":
		m.createSession()
	case "class":
		m.changeClass()
	case "label":
		edit(m.store, namespaceObject("ns"), func(n *metav1.PartialObjectMetadata) {
			n.Labels = map[string]string{v1alpha1.MaxModeLabel: draw(m, "label", "read-only", "workspace-write", "danger-full-access", "made-up")}
			if draw(m, "unlabel", false, true) {
				n.Labels = nil
			}
		})
	case "clock":
		m.advance(draw(m, "clock", time.Second, 5*time.Second, 31*time.Second, 2*time.Minute, time.Hour))
	case "skew":
		m.skew = draw(m, "skew", 0, -2*time.Second, time.Second)
	case "quota":
		m.quota = !m.quota
	case "fault":
		m.fault = draw(m, "fault", "conflict", "error", "lost answer", "forbidden")
	case "restart":
		m.restart(draw(m, "fresh", true, false))
	case "deposed":
		m.deposed(draw(m, "who", "a", "b"))
	case "message":
		m.say(draw(m, "to", "a", "b"))
	case "unsay":
		m.unsay()
	default:
		if s != nil {
			m.happenTo(s, event)
		}
	}
}

func (m *machine) happenTo(s *v1alpha1.AgentSession, event string) {
	switch event {
	case "delete":
		m.remove(m.key(s))
	case "mode":
		edit(m.store, s, func(s *v1alpha1.AgentSession) { s.Spec.Sandbox.Mode = draw(m, "mode", modes...) })
	case "network":
		edit(m.store, s, func(s *v1alpha1.AgentSession) {
			s.Spec.Sandbox.Network = draw(m, "network", v1alpha1.NetworkNone, v1alpha1.NetworkOpen)
		})
	case "bound":
		m.changeBound(s)
	case "suspend":
		edit(m.store, s, func(s *v1alpha1.AgentSession) { s.Spec.Suspend = !s.Spec.Suspend })
	case "times":
		edit(m.store, s, func(s *v1alpha1.AgentSession) { m.times(&s.Spec) })
	case "foreign":
		m.foreign(s)
	case "claim":
		if c := m.claim(s); c != nil {
			m.remove(m.key(c))
		}
	default:
		if p := m.pod(s); p != nil {
			m.happenToPod(p, event)
		}
	}
}

func (m *machine) happenToPod(p *corev1.Pod, event string) {
	if event == "pod" {
		m.changePod(p)
		return
	}
	a := m.agents[p.UID]
	if a == nil || m.reach(p) == nil {
		return
	}
	switch event {
	case "answer":
		a.answer(draw(m, "reason", turnCompleted, turnCompleted, "ModelFailed", "Cancelled", "TurnLimit"))
	case "silence":
		a.silent = !a.silent
	case "drain":
		if a.drains = !a.drains; !a.drains {
			a.confirm()
		}
	case "problem":
		a.observed.Problems = nil
		if reason := draw(m, "problem", "", wire.LogUnwritable, wire.ModelKeyMissing, wire.ModelUnavailable, wire.ToolsUnreachable, wire.BelowMinimum, "made-up"); reason != "" {
			a.observed.Problems = []wire.Problem{{Reason: reason, Message: "so it is"}}
		}
		a.said()
	case "reboot":
		a.boot(wire.Desired{SessionUID: a.observed.SessionUID, Incarnation: a.observed.Incarnation}, toolsContainers(p))
	case "force": // as an operator would that has newer objects, or had before a backup was put back
		if a.stamp != nil {
			a.stamp = new(*a.stamp)
			a.stamp.SessionGeneration += 3
			a.inForce = policy.Policy{}
			a.pending = &wire.Applied{Digest: policy.Encode(a.inForce).Digest, Stamp: *a.stamp, Seq: a.seq, SnapshotSeq: a.seq + 1}
			a.confirm()
		}
	case "container":
		c := &a.observed.Containers[0]
		c.Connected = !c.Connected
		a.said()
	}
}

func (m *machine) createSession() {
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: draw(m, "name", "a", "b")}}
	if m.session(s.Name) != nil {
		return
	}
	s.Spec.ClassName = draw(m, "className", "standard", "standard", "")
	s.Spec.Sandbox.Mode = draw(m, "mode", modes...)
	s.Spec.Completion = draw(m, "completion", v1alpha1.CompletionNever, v1alpha1.CompletionNever, v1alpha1.CompletionWhenIdle)
	s.Spec.Suspend = draw(m, "suspended", false, false, true)
	if draw(m, "model", 0, 0, 0, 1) == 1 {
		s.Spec.Model = &v1alpha1.ModelChoice{Name: "other"}
	}
	if storage := draw(m, "storage", "", v1alpha1.StorageEmptyDir, v1alpha1.StoragePersistentVolumeClaim); storage != "" {
		s.Spec.Workspace = &v1alpha1.Workspace{Storage: &v1alpha1.Storage{Type: storage}}
	}
	if draw(m, "timed", false, false, true) {
		m.times(&s.Spec)
	}
	if err := m.create(s); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) times(s *v1alpha1.AgentSessionSpec) {
	seconds := func(label string) *int64 {
		if n := draw(m, label, 0, 0, 60, 600); n > 0 {
			return new(int64(n))
		}
		return nil
	}
	s.ActiveDeadlineSeconds, s.TTLSecondsAfterFinished = seconds("deadline"), seconds("ttl")
	s.IdlePolicy = &v1alpha1.IdlePolicy{SuspendAfterSeconds: seconds("suspendAfter"), DeleteAfterSeconds: seconds("deleteAfter")}
}

func (m *machine) changeClass() {
	c := m.class()
	switch what := draw(m, "class", "ceiling", "ceiling", "reject", "model", "storage", "default", "gone", "history", "strategy", "instructions", "network", "egress", "egress"); {
	case c == nil:
		c = &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{v1alpha1.DefaultClassAnnotation: "true"}}}
		c.Spec.Ceiling.MaxMode = draw(m, "max", modes...)
		c.Spec.Model.DefaultName = "replay"
		m.alterClass(c, "egress")
		m.alterClass(c, "network")
		if err := m.create(c); err != nil {
			m.t.Fatal(err)
		}
	case what == "gone":
		m.remove(m.key(c))
	default:
		edit(m.store, c, func(c *v1alpha1.AgentSessionClass) { m.alterClass(c, what) })
	}
}

func (m *machine) alterClass(c *v1alpha1.AgentSessionClass, what string) {
	switch what {
	case "ceiling":
		c.Spec.Ceiling.MaxMode = draw(m, "max", modes...)
	case "network":
		c.Spec.Ceiling.MaxNetwork = draw(m, "maxNetwork", v1alpha1.NetworkOpen, v1alpha1.NetworkOpen, v1alpha1.NetworkNone)
	case "egress":
		c.Spec.Egress = draw(m, "egress", egressOf("203.0.113.7/32"), egressOf("203.0.113.7/32", "0.0.0.0/0"), egressOf("192.0.2.0/24", "0.0.0.0/0"), nil)
	case "reject":
		c.Spec.Ceiling.OnExceed = draw(m, "onExceed", v1alpha1.OnExceedClamp, v1alpha1.OnExceedReject)
	case "model":
		c.Spec.Model.AllowedNames = draw(m, "allowed", nil, []string{"other"})
	case "storage":
		c.Spec.Storage = &v1alpha1.ClassStorage{Storage: v1alpha1.Storage{Type: draw(m, "storage", v1alpha1.StorageEmptyDir, v1alpha1.StoragePersistentVolumeClaim)}}
	case "default":
		c.Annotations = map[string]string{v1alpha1.DefaultClassAnnotation: draw(m, "default", "true", "false")}
	case "history":
		c.Spec.History.Messages = new(int32(draw(m, "keep", 0, 1, 50)))
	case "strategy":
		c.Spec.UpdateStrategy = draw(m, "strategy", v1alpha1.UpdateOnRestart, v1alpha1.UpdateWhenIdle)
	case "instructions":
		c.Spec.Images.Tools = draw(m, "image", "tools:1", "tools:2")
	}
}

func egressOf(model v1alpha1.CIDR, open ...v1alpha1.CIDR) *v1alpha1.Egress {
	return &v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{model}, OpenCIDRs: open}
}

// changeBound is what somebody does to a NetworkPolicy.
func (m *machine) changeBound(s *v1alpha1.AgentSession) {
	n := m.bound(s)
	switch what := draw(m, "bound", "delete", "open", "unlabel"); {
	case n == nil:
	case what == "delete":
		m.remove(m.key(n))
	default:
		edit(m.store, n, func(n *networkingv1.NetworkPolicy) {
			n.Spec.Egress = append(n.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
			if what == "unlabel" {
				n.Labels = map[string]string{}
			}
		})
	}
}

// changePod is what kubelet and control plane do to a pod.
func (m *machine) changePod(p *corev1.Pod) {
	what := draw(m, "pod", "pull", "crash", "evict", "lost node", "delete", "restart")
	if what == "delete" {
		m.remove(m.key(p))
		return
	}
	edit(m.store, p, func(p *corev1.Pod) {
		switch what {
		case "pull":
			if p.Status.Phase != corev1.PodRunning {
				m.stuck[p.UID] = true
				p.Status = status(p, corev1.PodPending, waiting("ImagePullBackOff", "Back-off pulling"))
			}
		case "crash":
			if i := len(p.Status.ContainerStatuses) - 1; i >= 0 && p.Status.Phase == corev1.PodRunning {
				p.Status.ContainerStatuses[i].State = waiting("CrashLoopBackOff", "back-off")
				p.Status.ContainerStatuses[i].RestartCount++
			}
		case "evict":
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		case "lost node":
			m.stuck[p.UID] = true
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
			if a := m.agents[p.UID]; a != nil {
				a.silent = true
			}
		case "restart":
			for i := range p.Status.InitContainerStatuses {
				p.Status.InitContainerStatuses[i].RestartCount++
			}
		}
	})
}

func status(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	s := corev1.PodStatus{Phase: phase}
	for _, c := range p.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: state})
	}
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: state})
	}
	return s
}

func (m *machine) foreign(s *v1alpha1.AgentSession) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: podspec.PodName(s)}}
	switch have := m.objects[m.key(p)]; {
	case have == nil:
		if err := m.create(p); err != nil {
			m.t.Fatal(err)
		}
	case metav1.GetControllerOf(have) == nil:
		m.drop(m.key(p))
	}
}

func (m *machine) say(to string) {
	m.said++
	o := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("m%d", m.said)}}
	o.Spec.SessionName, o.Spec.Content, o.Spec.Interrupt = to, "Hello?", draw(m, "interrupt", false, false, true)
	if err := m.create(o); err != nil {
		m.t.Fatal(err)
	}
}

// unsay deletes a message.
func (m *machine) unsay() {
	if all := m.messages(); len(all) > 0 {
		m.remove(m.key(rapid.SampledFrom(all).Draw(m.t, "message")))
	}
}

func (m *machine) messages() []*v1alpha1.SessionMessage {
	var all []*v1alpha1.SessionMessage
	for _, o := range m.objects {
		if o, ok := o.(*v1alpha1.SessionMessage); ok {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.SessionMessage) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all
}
