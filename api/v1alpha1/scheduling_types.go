// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Scheduling says where pods of sessions run and what they give way to.
type Scheduling struct {
	// nodeSelector are labels that a node must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="a label's name must be [domain/]name, for example kubernetes.io/os, with at most 63 characters behind the slash"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of taints of nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// affinity to nodes and to other pods: as in a pod, without matchFields, namespaces,
	// matchLabelKeys and mismatchLabelKeys.
	// +optional
	Affinity *Affinity `json:"affinity,omitempty"`

	// priorityClassName names the PriorityClass of the pods. Where it does not exist, no pod
	// starts, and RunnerReady says PodRejected. Unset: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// LabelKey is the name of a label.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`
type LabelKey string

// LabelValue is the value of a label. It may be empty.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// Toleration lets pods run on nodes with a taint.
// +kubebuilder:validation:XValidation:rule="has(self.key) || (has(self.operator) && self.operator == 'Exists')",message="a toleration without a key is one of every taint: set operator: Exists, or name a key",fieldPath=".operator"
// +kubebuilder:validation:XValidation:rule="!has(self.value) || !has(self.operator) || self.operator != 'Exists'",message="with operator Exists every value is tolerated: take value out, or set operator: Equal",fieldPath=".value"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",message="tolerationSeconds is for effect NoExecute: set that, or take tolerationSeconds out",fieldPath=".tolerationSeconds"
type Toleration struct {
	// key of the taint. Unset, with operator Exists: of every taint.
	// +optional
	Key LabelKey `json:"key,omitempty"`

	// operator Equal tolerates a taint of this value, Exists of any. Unset: Equal.
	// +optional
	// +kubebuilder:validation:Enum=Equal;Exists
	Operator string `json:"operator,omitempty"`

	// value of the taint. Unset: the empty one.
	// +optional
	Value LabelValue `json:"value,omitempty"`

	// effect that is tolerated. Unset: all of them.
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect,omitempty"`

	// tolerationSeconds is how long a pod stays that runs when the taint comes. Unset: for
	// as long as it would anyway.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// Affinity draws pods to nodes and to other pods, or keeps them apart.
type Affinity struct {
	// nodeAffinity is what nodes must be or had better be.
	// +optional
	NodeAffinity *NodeAffinity `json:"nodeAffinity,omitempty"`

	// podAffinity is what other pods there must be or had better be nearby.
	// +optional
	PodAffinity *PodAffinity `json:"podAffinity,omitempty"`

	// podAntiAffinity is what other pods there must not be or had better not be nearby.
	// +optional
	PodAntiAffinity *PodAffinity `json:"podAntiAffinity,omitempty"`
}

// NodeAffinity is what nodes must be or had better be.
type NodeAffinity struct {
	// requiredDuringSchedulingIgnoredDuringExecution is what a node must be.
	// +optional
	RequiredDuringSchedulingIgnoredDuringExecution *NodeTerms `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`

	// preferredDuringSchedulingIgnoredDuringExecution is what a node had better be. The
	// weights of what it is are added up.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	PreferredDuringSchedulingIgnoredDuringExecution []PreferredNodeTerm `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// NodeTerms are terms of which a node must meet one.
type NodeTerms struct {
	// nodeSelectorTerms of which a node must meet one.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	NodeSelectorTerms []NodeTerm `json:"nodeSelectorTerms"`
}

// PreferredNodeTerm is a term that a node had better meet.
type PreferredNodeTerm struct {
	// weight of the term.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// preference is the term.
	// +required
	Preference NodeTerm `json:"preference"`
}

// NodeTerm is what the labels of a node must be.
type NodeTerm struct {
	// matchExpressions that must all hold.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NodeRequirement `json:"matchExpressions"`
}

// NodeRequirement is what one label of a node must be.
// +kubebuilder:validation:XValidation:rule="self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) : self.operator in ['In', 'NotIn'] ? has(self.values) : has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]{1,18}$')",message="In and NotIn need values, Exists and DoesNotExist have none, Gt and Lt have one, a whole number",fieldPath=".values"
type NodeRequirement struct {
	// key is the label's name.
	// +required
	Key LabelKey `json:"key"`

	// operator says how the label is compared with the values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	Operator string `json:"operator"`

	// values that the label is compared with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// PodAffinity is what other pods there must or must not be nearby, and what had better
// or had better not be.
type PodAffinity struct {
	// requiredDuringSchedulingIgnoredDuringExecution are terms that must all be met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RequiredDuringSchedulingIgnoredDuringExecution []PodTerm `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`

	// preferredDuringSchedulingIgnoredDuringExecution are terms that had better be met. The
	// weights of those that are, are added up.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	PreferredDuringSchedulingIgnoredDuringExecution []PreferredPodTerm `json:"preferredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// PreferredPodTerm is a term that had better be met.
type PreferredPodTerm struct {
	// weight of the term.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// podAffinityTerm is the term.
	// +required
	PodAffinityTerm PodTerm `json:"podAffinityTerm"`
}

// PodTerm is pods, and what counts as nearby.
type PodTerm struct {
	// labelSelector selects the pods. Those of sessions have the label
	// app.kubernetes.io/component: runner. An empty one selects all.
	// +required
	LabelSelector *Selector `json:"labelSelector"`

	// topologyKey is a label of nodes: nearby is where it has the same value, for example
	// kubernetes.io/hostname.
	// +required
	TopologyKey LabelKey `json:"topologyKey"`

	// namespaceSelector selects the namespaces of the pods. An empty one selects all. Unset:
	// the session's own namespace.
	// +optional
	NamespaceSelector *Selector `json:"namespaceSelector,omitempty"`
}
