// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// written are the reasons that the apiserver took from the operator, in all tests:
// condition/reason.
var written sync.Map

func remember(o client.Object) {
	var conditions []metav1.Condition
	switch o := o.(type) {
	case *v1alpha1.AgentSession:
		conditions = o.Status.Conditions
	case *v1alpha1.SessionMessage:
		conditions = o.Status.Conditions
	}
	for _, c := range conditions {
		written.Store(c.Type+"/"+c.Reason, true)
	}
}

// unreached are the reasons of the API that no test has brought about. It asks after the
// tests, and only if all of them have run.
func unreached() error {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		return nil
	}
	reasons, err := reasons()
	if err != nil {
		return err
	}
	if len(reasons) < 40 {
		return fmt.Errorf("only %d reasons were found in the API", len(reasons))
	}
	var missing []string
	for _, r := range reasons {
		if !slices.ContainsFunc(r.conditions, func(c string) bool { _, ok := written.Load(c + "/" + r.reason); return ok }) {
			missing = append(missing, strings.Join(r.conditions, " or ")+"/"+r.reason)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no test has brought these reasons about:\n  %s", strings.Join(missing, "\n  "))
	}
	return nil
}

type reason struct {
	conditions []string // one of them has it
	reason     string
}

var groupOf = regexp.MustCompile(`^Reasons of (?:an? )?(\w+)\.`)

// reasons reads the API's reasons from its source: which condition has them stands above
// each group.
func reasons() ([]reason, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1alpha1/conditions.go", nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var all []reason
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		var conditions []string
		doc := group.Doc.Text()
		switch m := groupOf.FindStringSubmatch(doc); {
		case m != nil && m[1] == "SessionMessage":
			conditions = []string{v1alpha1.ConditionDelivered, v1alpha1.ConditionAnswered}
		case m != nil:
			conditions = []string{m[1]}
		case strings.Contains(doc, "set on Stalled"):
			conditions = []string{v1alpha1.ConditionStalled}
		default:
			continue // condition types, reasons of events
		}
		for _, s := range group.Specs {
			text, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			if err != nil {
				return nil, err
			}
			all = append(all, reason{conditions, text})
		}
	}
	return all, nil
}
