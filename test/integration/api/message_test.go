// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const message = `
apiVersion: agentsession.dev/v1alpha1
kind: SessionMessage
metadata: {namespace: default}
spec: {sessionName: fix-build, content: And now.}
`

func TestMessagesThatAreRefusedOrAdmitted(t *testing.T) {
	refusals{
		"an ordinary one":             {both(), ""},
		"a long name":                 {set("metadata.name", strings.Repeat("a", 200)), ""},
		"without a session":           {unset("spec.sessionName"), "spec.sessionName: Required value"},
		"for no session's name":       {set("spec.sessionName", "Fix.Build"), "spec.sessionName: Invalid value"},
		"for an empty name":           {set("spec.sessionName", ""), "spec.sessionName: Invalid value"},
		"for a name beyond limits":    {set("spec.sessionName", strings.Repeat("a", 53)), "spec.sessionName: Too long"},
		"without content":             {unset("spec.content"), "spec.content: Required value"},
		"with empty content":          {set("spec.content", ""), "content is empty: write what the agent should do"},
		"with content of blanks":      {set("spec.content", "  \n"), "content is empty"},
		"with 1 byte":                 {set("spec.content", "?"), ""},
		"with 64 KiB":                 {set("spec.content", strings.Repeat("a", 65536)), ""},
		"with more than 64 KiB":       {set("spec.content", strings.Repeat("a", 65537)), "spec.content: Too long"},
		"with wide letters":           {set("spec.content", strings.Repeat("ä", 32769)), "content is larger than 65536 bytes: shorten it or split it into several messages"},
		"that interrupts":             {set("spec.interrupt", true), ""},
		"that half interrupts":        {set("spec.interrupt", "yes"), "spec.interrupt: Invalid value"},
		"with an author":              {set("spec.author", "ann"), ""}, // whose name it may be is the chart's policy
		"by nobody":                   {set("spec.author", ""), "spec.author: Invalid value"},
		"by a name without end":       {set("spec.author", strings.Repeat("a", 1025)), "spec.author: Too long"},
		"with what is not enforced":   {set("spec.priority", "high"), `unknown field "spec.priority"`},
		"without a spec":              {unset("spec"), "spec: Required value"},
		"with a status that it wrote": {set("status.reply", "mine"), ""},
	}.run(t, message)
}

func TestAMessageCannotChange(t *testing.T) {
	const rule = "a message cannot change once it exists: create another one"
	refusals{
		"its content": {set("spec.content", "Other."), rule},
		"its urgency": {set("spec.interrupt", true), rule},
		"its session": {set("spec.sessionName", "other"), rule},
		"its labels":  {set("metadata.labels", object{"team": "a"}), ""},
	}.runUpdates(t, message)
}

// The operator lists the messages of one session without reading all others.
func TestMessagesCanBeSelectedBySession(t *testing.T) {
	for _, name := range []string{"select-me", "select-me", "not-me"} {
		if err := create(t.Context(), manifest(t, message, set("spec.sessionName", name))); err != nil {
			t.Fatal(err)
		}
	}
	var l unstructured.UnstructuredList
	l.SetGroupVersionKind(schema.GroupVersionKind{Group: "agentsession.dev", Version: "v1alpha1", Kind: "SessionMessageList"})
	if err := api.List(t.Context(), &l, client.InNamespace("default"), client.MatchingFields{"spec.sessionName": "select-me"}); err != nil {
		t.Fatal(err)
	}
	foreign := slices.ContainsFunc(l.Items, func(u unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(u.Object, "spec", "sessionName")
		return name != "select-me"
	})
	if len(l.Items) != 2 || foreign {
		t.Errorf("%d messages, want the 2 of the session alone", len(l.Items))
	}
}
