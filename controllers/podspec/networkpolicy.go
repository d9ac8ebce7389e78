// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Operator is how a NetworkPolicy tells the operator's pods from others.
type Operator struct {
	Namespace string
	Labels    map[string]string
}

const dnsPort = 53

// NetworkPolicy bounds the one pod of a session whose class has egress: the operator comes in, and out
// goes what the class says, with openCIDRs if open is true.
func NetworkPolicy(in Input, operator Operator, open bool) *networkingv1ac.NetworkPolicyApplyConfiguration {
	egress := in.Class.Spec.Egress
	spec := networkingv1ac.NetworkPolicySpec().
		WithPodSelector(selector(map[string]string{LabelSessionUID: string(in.Session.UID)})).
		WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
		WithIngress(networkingv1ac.NetworkPolicyIngressRule().
			WithFrom(podsIn(operator.Namespace, operator.Labels)).
			WithPorts(port(corev1.ProtocolTCP, wire.Port)))
	if servers := nameServers(cmp.Or(egress.DNS, &v1alpha1.EgressDNS{Type: v1alpha1.EgressDNSCluster})); servers != nil {
		spec.WithEgress(networkingv1ac.NetworkPolicyEgressRule().
			WithTo(servers...).
			WithPorts(port(corev1.ProtocolUDP, dnsPort), port(corev1.ProtocolTCP, dnsPort)))
	}
	spec.WithEgress(networkingv1ac.NetworkPolicyEgressRule().
		WithTo(blocks(egress.ModelCIDRs)...).
		WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP)))
	if open && len(egress.OpenCIDRs) > 0 { // without a peer a rule would allow everything
		spec.WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(blocks(egress.OpenCIDRs)...))
	}
	labels := in.labels()
	delete(labels, LabelIncarnation) // it is the same for each
	return networkingv1ac.NetworkPolicy(PodName(in.Session), in.Session.Namespace).
		WithLabels(labels).
		WithOwnerReferences(owner(in.Session)).
		WithSpec(spec)
}

// nameServers are the peers that names are looked up at; none is nil.
func nameServers(dns *v1alpha1.EgressDNS) []*networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	switch dns.Type {
	case v1alpha1.EgressDNSCluster:
		return []*networkingv1ac.NetworkPolicyPeerApplyConfiguration{podsIn("kube-system", map[string]string{"k8s-app": "kube-dns"})}
	case v1alpha1.EgressDNSCIDRs:
		return blocks(dns.CIDRs)
	case v1alpha1.EgressDNSNone:
	}
	return nil
}

// podsIn are the pods of a namespace that have labels.
func podsIn(namespace string, labels map[string]string) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	return networkingv1ac.NetworkPolicyPeer().
		WithNamespaceSelector(selector(map[string]string{corev1.LabelMetadataName: namespace})).
		WithPodSelector(selector(labels))
}

func selector(labels map[string]string) *metav1ac.LabelSelectorApplyConfiguration {
	return metav1ac.LabelSelector().WithMatchLabels(labels)
}

func blocks(cidrs []v1alpha1.CIDR) []*networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	var peers []*networkingv1ac.NetworkPolicyPeerApplyConfiguration
	for _, c := range cidrs {
		peers = append(peers, networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR(string(c))))
	}
	return peers
}

func port(protocol corev1.Protocol, number int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(number))
}

// Clones reports whether the workspace of a session is filled over the network.
func Clones(session *v1alpha1.AgentSession) bool {
	s := Input{Session: session}.source()
	return s != nil && s.Git != nil
}
