// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/agentsession-dev/operator/config"
)

// refused are the causes of all refusals that the tests wanted and got, by kind.
var refused struct {
	sync.Mutex
	causes []string
}

func remember(err error) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return
	}
	refused.Lock()
	defer refused.Unlock()
	for _, c := range status.ErrStatus.Details.Causes {
		refused.causes = append(refused.causes, status.ErrStatus.Details.Kind+": "+c.Message)
	}
}

// unproved are the rules of the CRDs that no test has seen at work. It asks after the
// tests, and only if all of them have run.
func unproved() error {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		return nil
	}
	all, err := config.Definitions()
	if err != nil {
		return err
	}
	var missing []string
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			walk(version.Schema.OpenAPIV3Schema, "", func(path string, s *apiextensionsv1.JSONSchemaProps) {
				for _, rule := range s.XValidations {
					sawIt := func(cause string) bool {
						// A rule that breaks down names its message too.
						return strings.HasPrefix(cause, crd.Spec.Names.Kind+": ") && strings.Contains(cause, rule.Message) && !strings.Contains(cause, "evaluating rule")
					}
					if rule.Message == "" || !slices.ContainsFunc(refused.causes, sawIt) {
						missing = append(missing, fmt.Sprintf("%s%s: %s (%q)", crd.Spec.Names.Kind, path, rule.Rule, rule.Message))
					}
				}
			})
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no test has seen these rules refuse anything:\n  %s", strings.Join(missing, "\n  "))
	}
	return nil
}

// walk visits a schema and all below it.
func walk(s *apiextensionsv1.JSONSchemaProps, path string, visit func(path string, s *apiextensionsv1.JSONSchemaProps)) {
	visit(path, s)
	for name := range s.Properties {
		child := s.Properties[name]
		walk(&child, path+"."+name, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(s.Items.Schema, path+"[]", visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(s.AdditionalProperties.Schema, path+"{}", visit)
	}
}

// Each default of the CRDs is in an object that sets nothing, and is said in the text of its field.
func TestEachDefaultShows(t *testing.T) {
	bases := map[string]string{"AgentSession": session, "AgentSessionClass": class, "SessionMessage": message}
	all, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, crd := range all {
		base, ok := bases[crd.Spec.Names.Kind]
		if !ok {
			continue // no manifest of a person
		}
		u := manifest(t, base)
		if err := create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "", func(path string, s *apiextensionsv1.JSONSchemaProps) {
			if s.Default == nil || path == ".status" {
				return
			}
			value, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(strings.TrimPrefix(path, "."), ".")...)
			if !found || err != nil {
				t.Errorf("%s%s is unset, its default is %s", crd.Spec.Names.Kind, path, s.Default.Raw)
				return
			}
			if len(s.Properties) > 0 {
				return // an object, whose fields have defaults of their own
			}
			shown++
			want := strings.Trim(string(s.Default.Raw), `"`)
			if fmt.Sprint(value) != want {
				t.Errorf("%s%s = %v, want %s", crd.Spec.Names.Kind, path, value, want)
			}
			if !strings.Contains(strings.Join(strings.Fields(s.Description), " "), "Default: "+want) {
				t.Errorf("the text of %s%s does not say its default, %s", crd.Spec.Names.Kind, path, want)
			}
		})
	}
	if shown < 5 {
		t.Errorf("only %d defaults were found", shown)
	}
}

// The object's own numbers have bounds: beyond each the apiserver refuses.
func TestEachNumberHasItsBounds(t *testing.T) {
	bases := map[string]string{"AgentSession": session, "AgentSessionClass": class}
	all, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		base, ok := bases[crd.Spec.Names.Kind]
		if !ok {
			continue
		}
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "", func(path string, s *apiextensionsv1.JSONSchemaProps) {
			if s.Type != "integer" || !strings.HasPrefix(path, ".spec") || strings.ContainsAny(path, "[{") {
				return
			}
			path = strings.TrimPrefix(path, ".")
			if s.Minimum == nil || s.Maximum == nil {
				t.Errorf("%s.%s has no bounds", crd.Spec.Names.Kind, path)
				return
			}
			for value, want := range map[int64]string{
				int64(*s.Minimum): "", int64(*s.Maximum): "", int64(*s.Minimum) - 1: path + ": Invalid value", int64(*s.Maximum) + 1: path + ": Invalid value",
			} {
				t.Run(fmt.Sprintf("%s %s=%d", crd.Spec.Names.Kind, path, value), func(t *testing.T) {
					wantRefusal(t, create(t.Context(), manifest(t, base, set(path, value))), want)
				})
			}
		})
	}
}
