// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// scheduling parses a class's scheduling and sets it.
func scheduling(text string) edit {
	var v object
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return set("spec.scheduling", v)
}

func TestScheduling(t *testing.T) {
	const (
		labelRule    = "a label's name must be [domain/]name"
		nodeRule     = "In and NotIn need values, Exists and DoesNotExist have none, Gt and Lt have one, a whole number"
		selectorRule = "In and NotIn need values, Exists and DoesNotExist have none: add them, or take them out"
		preferred    = "{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [%]}}]}}}"
		pods         = "{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: %}]}}}"
	)
	node := func(expression string) edit { return scheduling(strings.Replace(preferred, "%", expression, 1)) }
	selector := func(s string) edit { return scheduling(strings.Replace(pods, "%", s, 1)) }
	refusals{
		"a runtime class":              {set("spec.runtimeClassName", "gvisor"), ""},
		"a runtime class in capitals":  {set("spec.runtimeClassName", "gVisor"), "spec.runtimeClassName: Invalid value"},
		"a runtime class of no name":   {set("spec.runtimeClassName", ""), "spec.runtimeClassName: Invalid value"},
		"nothing":                      {scheduling("{}"), ""},
		"a priority class":             {scheduling("{priorityClassName: batch}"), ""},
		"a priority class in capitals": {scheduling("{priorityClassName: Batch}"), "spec.scheduling.priorityClassName: Invalid value"},

		"labels of nodes":       {scheduling(`{nodeSelector: {kubernetes.io/os: linux, agents: ""}}`), ""},
		"no label's name":       {scheduling(`{nodeSelector: {"os of node": linux}}`), labelRule},
		"a label's long name":   {scheduling("{nodeSelector: {" + strings.Repeat("a", 64) + ": linux}}"), labelRule},
		"no label's value":      {scheduling(`{nodeSelector: {os: "li nux"}}`), "spec.scheduling.nodeSelector.os: Invalid value"},
		"a label's long value":  {scheduling("{nodeSelector: {os: " + strings.Repeat("a", 64) + "}}"), "spec.scheduling.nodeSelector.os: Too long"},
		"too many labels":       {set("spec.scheduling.nodeSelector", labelled(33)), "spec.scheduling.nodeSelector: Too many"},
		"as many as there may":  {set("spec.scheduling.nodeSelector", labelled(32)), ""},
		"tolerations":           {scheduling("{tolerations: [{operator: Exists}, {key: agents, value: only, effect: NoExecute, tolerationSeconds: 60}]}"), ""},
		"an unknown effect":     {scheduling("{tolerations: [{key: agents, effect: Evict}]}"), `supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},
		"an unknown comparison": {scheduling("{tolerations: [{key: agents, operator: In}]}"), `supported values: "Equal", "Exists"`},
		"no key":                {scheduling("{tolerations: [{value: only}]}"), "a toleration without a key is one of every taint"},
		"no key for equality":   {scheduling("{tolerations: [{operator: Equal}]}"), "a toleration without a key is one of every taint"},
		"a value that exists":   {scheduling("{tolerations: [{key: agents, operator: Exists, value: only}]}"), "with operator Exists every value is tolerated"},
		"seconds for nothing":   {scheduling("{tolerations: [{key: agents, tolerationSeconds: 60}]}"), "tolerationSeconds is for effect NoExecute"},
		"seconds before now":    {scheduling("{tolerations: [{key: agents, effect: NoExecute, tolerationSeconds: -1}]}"), "tolerationSeconds: Invalid value"},

		"a node that is":              {node("{key: arch, operator: In, values: [arm64]}"), ""},
		"a node that has":             {node("{key: arch, operator: Exists}"), ""},
		"a node with more":            {node("{key: cores, operator: Gt, values: ['7']}"), ""},
		"a node that is nothing":      {node("{key: arch, operator: In}"), nodeRule},
		"a node that is none of none": {node("{key: arch, operator: NotIn, values: []}"), "should have at least 1 items"},
		"a node that has a value":     {node("{key: arch, operator: DoesNotExist, values: [arm64]}"), nodeRule},
		"a node with more than what":  {node("{key: cores, operator: Lt}"), nodeRule},
		"a node with more than text":  {node("{key: cores, operator: Lt, values: [many]}"), nodeRule},
		"a node with more than two":   {node("{key: cores, operator: Lt, values: ['1', '2']}"), nodeRule},
		"a node by no operator":       {node("{key: arch, operator: Is, values: [arm64]}"), `supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`},
		"a node by no label":          {node("{key: 'a b', operator: Exists}"), "key: Invalid value"},
		"no weight":                   {scheduling("{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}"), "weight: Required value"},
		"too heavy a weight":          {scheduling("{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}"), "weight: Invalid value"},
		"a term that says nothing":    {scheduling("{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: []}]}}}}"), "should have at least 1 items"},
		"no term":                     {scheduling("{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}"), "should have at least 1 items"},
		"a node's fields":             {scheduling("{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: []}]}}}}"), "matchFields"},

		"apart from its like":        {selector("{matchLabels: {app.kubernetes.io/component: runner}}"), ""},
		"apart from all":             {selector("{}"), ""},
		"apart from some":            {selector("{matchExpressions: [{key: team, operator: NotIn, values: [a]}]}"), ""},
		"apart from none of none":    {selector("{matchExpressions: [{key: team, operator: NotIn}]}"), selectorRule},
		"apart from what is a value": {selector("{matchExpressions: [{key: team, operator: Exists, values: [a]}]}"), selectorRule},
		"apart by an unknown way":    {selector("{matchExpressions: [{key: team, operator: Gt, values: ['1']}]}"), `supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
		"apart by no label":          {selector("{matchLabels: {'a b': c}}"), labelRule},
		"apart from nobody in particular": {
			scheduling("{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}}"), "labelSelector: Required value",
		},
		"apart by no topology": {
			scheduling("{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, podAffinityTerm: {labelSelector: {}}}]}}}"), "topologyKey: Required value",
		},
	}.run(t, class)
}

func labelled(n int) object {
	labels := object{}
	for _, name := range numbered(n) {
		labels[name.(string)] = "x"
	}
	return labels
}
