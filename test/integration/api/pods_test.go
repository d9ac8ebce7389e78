// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The reviewed pods and Secrets are valid, and a namespace that enforces the Pod
// Security Standard restricted admits them; it does not admit one that is loosened.
func TestARestrictedNamespaceAdmitsTheReviewedPods(t *testing.T) {
	ns := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName("demo") // the namespace in the reviewed files
	ns.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	classes(t)
	files, err := filepath.Glob("../../../controllers/podspec/testdata/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d reviewed files found (%v), want all of them", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(b, &u.Object); err != nil {
				t.Fatal(err)
			}
			loosened := u.DeepCopy()
			wantRefusal(t, dryRun(t, u), "")
			if u.GetKind() == "Pod" {
				set("spec.securityContext.seccompProfile.type", "Unconfined")(loosened.Object)
				wantRefusal(t, dryRun(t, loosened), `violates PodSecurity "restricted:latest": seccompProfile`)
			}
		})
	}
}

// classes are what the reviewed pods name. The apiserver admits pods that name a
// PriorityClass a moment after it has been created.
func classes(t *testing.T) {
	t.Helper()
	for _, o := range []object{
		{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": object{"name": "gvisor"}, "handler": "runsc"},
		{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": object{"name": "batch"}, "value": int64(10)},
	} {
		if err := api.Create(t.Context(), &unstructured.Unstructured{Object: o}); err != nil {
			t.Fatal(err)
		}
	}
	probe := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "probe", "namespace": "default"}, "spec": object{
		"priorityClassName": "batch", "runtimeClassName": "gvisor", "containers": []any{object{"name": "x", "image": "x"}},
	}}
	var err error
	for range 200 {
		if err = dryRun(t, &unstructured.Unstructured{Object: probe}); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("no pod can name the classes: %v", err)
}

func dryRun(t *testing.T, u *unstructured.Unstructured) error {
	t.Helper()
	return api.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict"))
}
