// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	modelCIDR = "203.0.113.7/32"
	openCIDR  = "198.51.100.0/24"
)

// bound gives the bench's class egress, and lets its sessions have an open network.
func (b *bench) bound() {
	b.t.Helper()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.Ceiling.MaxNetwork = v1alpha1.NetworkOpen
		c.Egress = &v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{modelCIDR}, OpenCIDRs: []v1alpha1.CIDR{openCIDR}}
	})
}

func (b *bench) patchNetwork(network v1alpha1.NetworkAccess) {
	b.t.Helper()
	s := b.session()
	s.Spec.Sandbox.Network = network
	if err := admin.Update(b.t.Context(), s); err != nil {
		b.t.Fatalf("changing the network: %v", err)
	}
}

// networkPolicy returns the session's; nil when there is none.
func (b *bench) networkPolicy() *networkingv1.NetworkPolicy {
	b.t.Helper()
	var n networkingv1.NetworkPolicy
	err := admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}, &n)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatalf("reading the network policy: %v", err)
	}
	if err != nil {
		return nil
	}
	return &n
}

// reach says what the session's policy lets out, "" where there is none.
func (b *bench) reach() string {
	b.t.Helper()
	n := b.networkPolicy()
	if n == nil {
		return ""
	}
	var all []string
	for _, r := range n.Spec.Egress {
		for _, to := range r.To {
			if to.IPBlock != nil {
				all = append(all, to.IPBlock.CIDR)
			} else {
				all = append(all, "dns")
			}
		}
	}
	return strings.Join(all, " ")
}

const (
	reachClosed = "dns " + modelCIDR
	reachOpen   = reachClosed + " " + openCIDR
)

// The policy is there before the pod, is the session's, and is exactly this. It costs one write.
func TestAPodIsBoundedBeforeItIsThere(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.ready(v1alpha1.ModeReadOnly)
	kinds := []string{}
	for _, w := range b.written {
		kinds = append(kinds, strings.Join(strings.Fields(w)[:2], " "))
	}
	first, pod := slices.Index(kinds, "create *v1.NetworkPolicy"), slices.Index(kinds, "create *v1.Pod")
	if first < 0 || pod < first || len(b.written) > 7 {
		t.Errorf("the policy is write %d and the pod %d of %q", first, pod, b.written)
	}
	n := b.networkPolicy()
	if !metav1.IsControlledBy(n, b.session()) {
		t.Errorf("the policy belongs to %+v", n.OwnerReferences)
	}
	tcp, udp := new(corev1.ProtocolTCP), new(corev1.ProtocolUDP)
	at := func(protocol *corev1.Protocol, port int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: protocol, Port: new(intstr.FromInt32(port))}
	}
	pods := func(namespace, label, value string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
		}}
	}
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{podspec.LabelSessionUID: string(b.session().UID)}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  pods("agentsession-system", "app.kubernetes.io/component", "manager"),
			Ports: []networkingv1.NetworkPolicyPort{at(tcp, wire.Port)},
		}},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: pods("kube-system", "k8s-app", "kube-dns"), Ports: []networkingv1.NetworkPolicyPort{at(udp, 53), at(tcp, 53)}},
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: modelCIDR}}}, Ports: []networkingv1.NetworkPolicyPort{{Protocol: tcp}}},
		},
	}
	if diff := cmp.Diff(want, n.Spec); diff != "" {
		t.Errorf("the policy (-want +got):\n%s", diff)
	}
	if b.pod().Labels[podspec.LabelSessionUID] != string(b.session().UID) {
		t.Errorf("it does not select the pod, whose labels are %v", b.pod().Labels)
	}
	b.quiet()
}

// Widening, the policy is open before the agent is told. Narrowing, it is closed although the agent has not
// confirmed yet: what an agent says cannot keep it open.
func TestThePolicyFollowsTheNetworkOfTheSession(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.ready(v1alpha1.ModeWorkspaceWrite)
	atPush := make(chan string, 10)
	b.agent.OnPush(func(d wire.Desired) {
		if strings.Contains(d.Policy, `"network":"open"`) {
			atPush <- b.reach()
		}
	})
	b.patchNetwork(v1alpha1.NetworkOpen)
	b.until("ModeApplied=True/Applied")
	if got := <-atPush; got != reachOpen || b.reach() != reachOpen {
		t.Errorf("the pod reaches %q when the agent is told that its network is open, and %q then", got, b.reach())
	}
	b.quiet()

	b.agent.OnPush(nil)
	b.agent.Drain()
	b.patchNetwork(v1alpha1.NetworkNone)
	b.until("ModeApplied=False/Draining")
	if got := b.reach(); got != reachClosed {
		t.Errorf("the pod reaches %q after its network was closed", got)
	}
	b.agent.Confirm(1)
	b.until("ModeApplied=True/Applied")
	b.quiet()

	// So it is when the agent cannot be reached at all.
	b.patchNetwork(v1alpha1.NetworkOpen)
	b.until("ModeApplied=True/Applied")
	release := b.agent.Hold()
	defer release()
	b.patchNetwork(v1alpha1.NetworkNone)
	b.step()
	if got := b.reach(); got != reachClosed {
		t.Errorf("with an agent that does not answer the pod reaches %q", got)
	}
}

// The ceiling of the class counts, not what the spec asks for.
func TestAClampedNetworkIsNotOpened(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Ceiling.MaxNetwork = v1alpha1.NetworkNone })
	b.ready(v1alpha1.ModeReadOnly)
	b.patchNetwork(v1alpha1.NetworkOpen)
	b.until("ModeApplied=True/Clamped")
	if got := b.reach(); got != reachClosed {
		t.Errorf("the pod reaches %q", got)
	}
}

// A repository is fetched before any tool runs. Then the pod's reach is what the sandbox says.
func TestAGitSourceIsReachedUntilTheWorkspaceIsFilled(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.applySource(v1alpha1.WorkspaceSource{Type: v1alpha1.SourceGit, Git: &v1alpha1.GitSource{URL: "https://git.example.com/a.git"}})
	b.step()
	if got := b.reach(); got != reachOpen {
		t.Errorf("before the fetch the pod reaches %q", got)
	}
	b.fetching(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}, corev1.ContainerState{})
	b.step()
	if got := b.reach(); got != reachOpen {
		t.Errorf("during the fetch the pod reaches %q", got)
	}
	b.start()
	b.setPod(func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: podspec.WorkspaceContainer, State: ended(0, "")})
	})
	b.until("Ready=True/Running")
	if got := b.reach(); got != reachClosed {
		t.Errorf("after the fetch the pod reaches %q", got)
	}
	b.quiet()
}

// What others do to the policy is undone; what the class says is done at once, with the pod that runs.
func TestThePolicyStaysAsTheClassWantsIt(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.ready(v1alpha1.ModeReadOnly)
	pod, made := b.pod(), b.networkPolicy()
	for name, change := range map[string]func(*networkingv1.NetworkPolicy){
		"a rule more": func(n *networkingv1.NetworkPolicy) {
			n.Spec.Egress = append(n.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		},
		"no rule":          func(n *networkingv1.NetworkPolicy) { n.Spec.Egress, n.Spec.Ingress = nil, nil },
		"another selector": func(n *networkingv1.NetworkPolicy) { n.Spec.PodSelector.MatchLabels["not"] = "this" },
		"one type":         func(n *networkingv1.NetworkPolicy) { n.Spec.PolicyTypes = n.Spec.PolicyTypes[:1] },
		"other labels":     func(n *networkingv1.NetworkPolicy) { n.Labels = map[string]string{"mine": "true"} },
	} {
		n := b.networkPolicy()
		change(n)
		if err := admin.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		b.step()
		n = b.networkPolicy()
		if diff := cmp.Diff(made.Spec, n.Spec); diff != "" || n.Labels[podspec.LabelSession] != b.name.Name || n.UID != made.UID {
			t.Errorf("%s: the policy was not put right: labels %v (-want +got):\n%s", name, n.Labels, diff)
		}
		b.quiet()
	}
	if err := admin.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	b.step()
	if n := b.networkPolicy(); n == nil || cmp.Diff(made.Spec, n.Spec) != "" {
		t.Errorf("after it was deleted the policy is %+v", n)
	}

	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.Egress.ModelCIDRs = []v1alpha1.CIDR{"192.0.2.0/24"}
		c.Egress.DNS = &v1alpha1.EgressDNS{Type: v1alpha1.EgressDNSNone}
	})
	b.step()
	if got := b.reach(); got != "192.0.2.0/24" {
		t.Errorf("after the class changed the pod reaches %q", got)
	}
	b.quiet()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Egress = nil })
	b.step()
	if n := b.networkPolicy(); n != nil {
		t.Errorf("a class without egress has a policy: %+v", n)
	}
	b.quiet()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.Egress = &v1alpha1.Egress{ModelCIDRs: []v1alpha1.CIDR{modelCIDR}}
	})
	b.step()
	if got := b.reach(); got != reachClosed {
		t.Errorf("a class that gets egress: the pod reaches %q", got)
	}
	b.wants("Outdated=False/Current", "Ready=True/Running")
	if now := b.pod(); now.UID != pod.UID {
		t.Error("the pod was replaced")
	}
	b.quiet()
}

func TestAForeignNetworkPolicyIsNeitherUsedNorRemoved(t *testing.T) {
	b := newBench(t)
	b.bound()
	b.apply(v1alpha1.ModeReadOnly)
	foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}}
	b.create(foreign)
	if result := b.step(); result.RequeueAfter < 30*time.Second {
		t.Errorf("looks again after %s: a hot loop", result.RequeueAfter)
	}
	b.wants("RunnerReady=False/NameTaken", "Ready=False/NameTaken", "Stalled=True/NameTaken")
	if n := b.networkPolicy(); b.pod() != nil || n.UID != foreign.UID || len(n.OwnerReferences) != 0 || len(n.Spec.Egress) != 0 {
		t.Error("a pod runs without a policy of its own, or the foreign one was touched")
	}
	b.quiet()
	if err := admin.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	b.step()
	if b.pod() == nil || b.reach() != reachClosed {
		t.Errorf("no pod after the foreign policy went:\n%s", b.conditions())
	}
}

// Where the policy cannot be made there is no pod.
func TestAPolicyThatIsRefusedKeepsThePodAway(t *testing.T) {
	b := newBench(t)
	b.bound()
	const counted = corev1.ResourceName("count/networkpolicies.networking.k8s.io")
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("0")}}}
	b.create(q)
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{counted: resource.MustParse("0")}
	if err := admin.Status().Update(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	b.eventually("the quota is in force", func() bool {
		probe := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, GenerateName: "probe-"}}
		err := admin.Create(t.Context(), probe)
		if err == nil {
			_ = admin.Delete(t.Context(), probe)
		}
		return err != nil
	})
	b.apply(v1alpha1.ModeReadOnly)
	if result := b.step(); result.RequeueAfter < 30*time.Second {
		t.Errorf("tries again after %s: a hot loop", result.RequeueAfter)
	}
	b.wants("RunnerReady=False/PodRejected", "Stalled=True/PodRejected")
	if !strings.Contains(b.conditions(), "refuses the NetworkPolicy") || b.pod() != nil || len(b.secrets()) != 0 {
		t.Errorf("there is a pod, a Secret, or no word of the policy:\n%s", b.conditions())
	}
}

// The watch alone brings a policy back that somebody deletes; and the apiserver counts one write more than without.
func TestTheManagerWatchesItsPolicies(t *testing.T) {
	b := newBench(t)
	b.bound()
	resyncs, writes, from := b.readyUnderAudit()
	if len(writes) > 7 || len(slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return !strings.Contains(w, "networkpolicies") })) != 1 {
		t.Errorf("create to Ready took %q", writes)
	}
	b.rests(resyncs)
	if writes, from = b.audited(from); len(writes) > 0 {
		t.Errorf("an unchanged world was written to: %q", writes)
	}
	before := b.networkPolicy()
	if err := admin.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	b.eventually("the policy is back", func() bool { n := b.networkPolicy(); return n != nil && n.UID != before.UID })
	b.patchNetwork(v1alpha1.NetworkOpen)
	b.eventually("it is open", func() bool { return b.has("ModeApplied=True/Applied") && b.reach() == reachOpen })
	b.rests(resyncs)
	if writes, _ = b.audited(from); len(writes) > 4 { // the policy twice, the status once or twice
		t.Errorf("a policy that came back and a switch took %q", writes)
	}
}
