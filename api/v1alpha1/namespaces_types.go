// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AllowedNamespaces says which namespaces may have sessions of a class.
// +kubebuilder:validation:XValidation:rule="(self.from == 'Selector') == has(self.selector)",message="selector goes with from Selector, and from Selector needs it",fieldPath=".selector"
type AllowedNamespaces struct {
	// from is All for every namespace, Selector for those with certain labels.
	// +required
	From NamespacesFrom `json:"from"`

	// selector is what the labels of a namespace must be, for from Selector. An empty one
	// selects every namespace.
	// +optional
	Selector *Selector `json:"selector,omitempty"`
}

// NamespacesFrom is where the sessions of a class may be.
// +kubebuilder:validation:Enum=All;Selector
type NamespacesFrom string

const (
	// NamespacesFromAll allows every namespace.
	NamespacesFromAll NamespacesFrom = "All"
	// NamespacesFromSelector allows those whose labels the selector selects.
	NamespacesFromSelector NamespacesFrom = "Selector"
)
