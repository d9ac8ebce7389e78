// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// namespaceOf is why a class has no sessions in a namespace; nil if it may have some.
func namespaceOf(class *v1alpha1.AgentSessionClass, namespace *metav1.PartialObjectMetadata) *refusal {
	allowed := class.Spec.AllowedNamespaces
	if allowed == nil || allowed.From == v1alpha1.NamespacesFromAll || selects(allowed.Selector, namespace.Labels) {
		return nil
	}
	return refuse(v1alpha1.ReasonNamespaceNotAllowed, "Class %s does not allow sessions in namespace %s: use another class, or have the namespace labelled as allowedNamespaces of the class demands.",
		class.Name, namespace.Name)
}

// selects reports whether a selector selects what has these labels. One that is missing, or that
// nobody understands, selects nothing.
func selects(s *v1alpha1.Selector, have map[string]string) bool {
	if s == nil {
		return false
	}
	same, err := podspec.Typed[metav1.LabelSelector](s) // the API gives its fields the same names
	if err != nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(same)
	return err == nil && selector.Matches(labels.Set(have))
}
