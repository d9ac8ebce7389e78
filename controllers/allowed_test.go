// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

func TestWhichNamespacesASelectorSelects(t *testing.T) {
	expression := func(operator string, values ...v1alpha1.LabelValue) *v1alpha1.Selector {
		return &v1alpha1.Selector{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: "team", Operator: operator, Values: values}}}
	}
	label := func(v v1alpha1.LabelValue) *v1alpha1.Selector {
		return &v1alpha1.Selector{MatchLabels: map[string]v1alpha1.LabelValue{"team": v}}
	}
	for name, tc := range map[string]struct {
		selector *v1alpha1.Selector
		want     bool
	}{
		"none":                      {nil, false},
		"an empty one":              {&v1alpha1.Selector{}, true},
		"its label":                 {label("a"), true},
		"another's":                 {label("b"), false},
		"one of several":            {expression("In", "b", "a"), true},
		"none of several":           {expression("NotIn", "b", "a"), false},
		"any":                       {expression("Exists"), true},
		"what it has not":           {expression("DoesNotExist"), false},
		"what nobody understands":   {expression("Like", "a"), false},
		"a comparison with nothing": {expression("In"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selects(tc.selector, map[string]string{"team": "a", "tier": "x"}); got != tc.want {
				t.Errorf("selects() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAnyLabelOfANamespaceIsLookedAt(t *testing.T) {
	before, after := namespaceObject("a"), namespaceObject("a")
	after.Labels = map[string]string{"team": "a"}
	if p := labelsChanged(); !p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) || p.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
		t.Error("a new label is passed over, or an old one is not")
	}
}
