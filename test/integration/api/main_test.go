// SPDX-License-Identifier: Apache-2.0

// Package api proves the rules of the custom resources against a real apiserver:
// what is admitted, what is refused and with which words, and what is filled in.
package api

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/config"
)

// api talks to the apiserver in unstructured objects: the Go types would hide
// what a person can write, such as an empty string or an unknown value.
var api client.Client

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set: these tests need etcd and kube-apiserver. Run `make test` or `make integration`, which build both.")
		return 1
	}
	crds, err := config.Definitions()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: crds}}
	config, err := env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting etcd and kube-apiserver:", err)
		return 1
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping etcd and kube-apiserver:", err)
		}
	}()
	config.QPS, config.Burst = 200, 200
	if api, err = client.New(config, client.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "connecting to kube-apiserver:", err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	if err := unproved(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// object is a manifest of one of our kinds.
type object = map[string]any

// edit changes a manifest before it is sent.
type edit func(object)

// set puts a value at a path such as spec.model.name.
func set(path string, value any) edit {
	return func(o object) {
		if err := unstructured.SetNestedField(o, value, strings.Split(path, ".")...); err != nil {
			panic(err)
		}
	}
}

// unset removes what is at a path.
func unset(path string) edit {
	return func(o object) { unstructured.RemoveNestedField(o, strings.Split(path, ".")...) }
}

// manifest parses the base, gives it a name of its own and applies the edits.
func manifest(t *testing.T, base string, edits ...edit) *unstructured.Unstructured {
	t.Helper()
	o := object{}
	if err := yaml.Unmarshal([]byte(base), &o); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: o}
	u.SetGenerateName("t-")
	for _, e := range edits {
		e(o)
	}
	if u.GetName() != "" {
		u.SetGenerateName("")
	}
	return u
}

// create sends a manifest as kubectl does: strictly, so that a misspelt field is an error too.
func create(ctx context.Context, u *unstructured.Unstructured) error {
	return api.Create(ctx, u, client.FieldValidation(metav1.FieldValidationStrict))
}

// wantRefusal checks that err is a refusal with the wanted words, or none where none are wanted.
func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("admitted, want a refusal that says %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with\n  %v\nwant words\n  %s", err, want)
	default:
		remember(err)
	}
}

// refusals runs a table of creations: a sentence, an edit of the base, the wanted words ("" when it is admitted).
type refusals map[string]struct {
	edit edit
	want string
}

func (table refusals) run(t *testing.T, base string) {
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, create(t.Context(), manifest(t, base, tc.edit)), tc.want)
		})
	}
}

// updates runs a table of changes to an object that exists.
func (table refusals) runUpdates(t *testing.T, base string) {
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			u := manifest(t, base)
			if err := create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			tc.edit(u.Object)
			wantRefusal(t, api.Update(t.Context(), u), tc.want)
		})
	}
}
