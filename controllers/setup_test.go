// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the cache takes from a pod is nothing that a decision needs.
func TestAPodInTheCacheDecidesLikeTheWholeOne(t *testing.T) {
	for name, change := range map[string]func(*world){
		"empty dir":              func(*world) {},
		"claim":                  (*world).persist,
		"claim, to be suspended": func(w *world) { w.persist(); w.session.Spec.Suspend = true },
		"being suspended":        func(w *world) { w.session.Spec.Suspend = true },
		"read-only":              func(w *world) { w.pod.Spec.Containers = w.pod.Spec.Containers[:1]; w.resolve() },
	} {
		t.Run(name, func(t *testing.T) {
			w := settled()
			change(w)
			status, plan := planned(w)
			slim, err := slimPod(w.pod.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			w.pod = slim.(*corev1.Pod)
			w.resolve()
			slimStatus, slimPlan := planned(w)
			if diff := cmp.Diff(status, slimStatus); diff != "" {
				t.Errorf("the status is another one (-whole +cached):\n%s", diff)
			}
			if plan != slimPlan {
				t.Errorf("the plan is %d, of the whole pod %d", slimPlan, plan)
			}
		})
	}
}

// Neither managed fields nor kubectl's copy of what was applied fill the cache; what else was
// noted stays.
func TestTheCacheKeepsNoCopies(t *testing.T) {
	s := settled().session
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "team": "build"}
	if _, err := slim(s); err != nil {
		t.Fatal(err)
	}
	if len(s.ManagedFields) > 0 || len(s.Annotations) != 1 || s.Annotations["team"] != "build" {
		t.Errorf("in the cache: %v, %v", s.ManagedFields, s.Annotations)
	}
}

func planned(w *world) (any, podPlan) {
	plan, _ := planPod(w)
	return statusOf(w), plan
}
