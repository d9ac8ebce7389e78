// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/agentsession-dev/operator/api/v1alpha1"
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
	var l metav1.LabelSelector
	for k, v := range s.MatchLabels {
		metav1.AddLabelToSelector(&l, k, string(v))
	}
	for _, e := range s.MatchExpressions {
		r := metav1.LabelSelectorRequirement{Key: string(e.Key), Operator: metav1.LabelSelectorOperator(e.Operator)}
		for _, v := range e.Values {
			r.Values = append(r.Values, string(v))
		}
		l.MatchExpressions = append(l.MatchExpressions, r)
	}
	selector, err := metav1.LabelSelectorAsSelector(&l)
	return err == nil && selector.Matches(labels.Set(have))
}
