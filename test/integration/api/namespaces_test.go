// SPDX-License-Identifier: Apache-2.0

package api

import "testing"

func TestAllowedNamespacesThatAreRefusedOrAdmitted(t *testing.T) {
	from := func(o object) edit { return set("spec.allowedNamespaces", o) }
	const union = "selector goes with from Selector, and from Selector needs it"
	refusals{
		"every namespace":          {from(object{"from": "All"}), ""},
		"namespaces by a label":    {from(object{"from": "Selector", "selector": object{"matchLabels": object{"example.com/team": "a"}}}), ""},
		"namespaces by comparison": {from(object{"from": "Selector", "selector": object{"matchExpressions": []any{object{"key": "team", "operator": "Exists"}}}}), ""},
		"namespaces from nowhere":  {from(object{}), "spec.allowedNamespaces.from: Required value"},
		"namespaces from the same": {from(object{"from": "Same"}), `supported values: "All", "Selector"`},
		"a selector for all":       {from(object{"from": "All", "selector": object{}}), union},
		"no selector":              {from(object{"from": "Selector"}), union},
		"a selector of no label":   {from(object{"from": "Selector", "selector": object{"matchLabels": object{"-": "a"}}}), "a label's name must be [domain/]name"},
	}.run(t, class)
}
