// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Selector selects objects by their labels, as a LabelSelector does. All that it says must hold.
type Selector struct {
	// matchLabels are labels that an object must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="a label's name must be [domain/]name, for example app.kubernetes.io/name, with at most 63 characters behind the slash"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are comparisons with labels of an object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is what one label must be.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == has(self.values)",message="In and NotIn need values, Exists and DoesNotExist have none: add them, or take them out",fieldPath=".values"
type SelectorRequirement struct {
	// key is the label's name.
	// +required
	Key LabelKey `json:"key"`

	// operator says how the label is compared with the values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`

	// values that the label is compared with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}
