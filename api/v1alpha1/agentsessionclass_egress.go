// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CIDR is a range of addresses, such as 203.0.113.0/24 or 2001:db8::/32.
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="this is no range of addresses in CIDR notation: write the network's address and the length of its prefix, for example 203.0.113.0/24, or 203.0.113.7/32 for one address"
type CIDR string

// Egress bounds what the pods of a class reach, and who reaches them, by a
// NetworkPolicy for each. It holds for the whole pod, agent and tools alike.
type Egress struct {
	// modelCIDRs are what a pod reaches by TCP whatever its sandbox says: the addresses
	// of the model's endpoint, and of the collector of traces if there is one. For a
	// Service of the cluster, those of the pods behind it.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ModelCIDRs []CIDR `json:"modelCIDRs"`

	// openCIDRs are what a pod reaches besides while the network of its session is
	// open, by every protocol and port; and, with a Git source, until its workspace is
	// filled. 0.0.0.0/0 holds pods, nodes and the cloud's metadata address too.
	// Unset: nothing.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	OpenCIDRs []CIDR `json:"openCIDRs,omitempty"`

	// dns is where pods look up names. Unset: Cluster.
	// +optional
	DNS *EgressDNS `json:"dns,omitempty"`
}

// EgressDNS is where pods look up names, on port 53.
// +kubebuilder:validation:XValidation:rule="self.type == 'CIDRs' ? has(self.cidrs) : !has(self.cidrs)",message="cidrs goes with type CIDRs, and type CIDRs needs it",fieldPath=".cidrs"
type EgressDNS struct {
	// type is Cluster for the pods of the cluster's DNS, which are those with the label
	// k8s-app=kube-dns in the namespace kube-system; CIDRs for other addresses, such as
	// that of a cache on the nodes; None for nowhere, where the endpoint is an address.
	// +required
	Type EgressDNSType `json:"type"`

	// cidrs are the addresses of the servers, for type CIDRs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CIDRs []CIDR `json:"cidrs,omitempty"`
}

// EgressDNSType is where pods look up names.
// +kubebuilder:validation:Enum=Cluster;CIDRs;None
type EgressDNSType string

const (
	// EgressDNSCluster is the cluster's DNS.
	EgressDNSCluster EgressDNSType = "Cluster"
	// EgressDNSCIDRs are servers elsewhere.
	EgressDNSCIDRs EgressDNSType = "CIDRs"
	// EgressDNSNone is nowhere.
	EgressDNSNone EgressDNSType = "None"
)
