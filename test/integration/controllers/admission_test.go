// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// What admission makes of a pod is no drift: a LimitRange fills in resources, a policy puts a
// container beside ours. The session gets ready, and nobody writes or replaces anything.
func TestPodsThatAdmissionRewritesAreNoDrift(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.class.Spec.UpdateStrategy = v1alpha1.UpdateWhenIdle
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.create(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: "defaults"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"memory": resource.MustParse("256Mi")}}},
	}})
	b.injectSidecar()
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	p := b.pod()
	if n := len(p.Spec.Containers); n != 3 || p.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
		t.Fatalf("admission has not rewritten the pod: %d containers, limits %v", n, p.Spec.Containers[0].Resources.Limits)
	}
	b.start()
	b.until("Ready=True/Running")
	b.wants("Outdated=False/Current")
	b.quiet()
	b.r.Now = func() time.Time { return time.Now().Add(time.Hour) } // an outdated pod would be replaced by now
	b.step()
	if again := b.pod(); again == nil || again.UID != p.UID || again.DeletionTimestamp != nil {
		t.Error("the pod was replaced")
	}
}

// injectSidecar has the apiserver put a container into every pod of the bench's namespace,
// as a mesh does.
func (b *bench) injectSidecar() {
	b.t.Helper()
	name := "sidecar-" + b.name.Namespace
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec = admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": b.name.Namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh", image: "mesh:1"}}]`,
		}}},
	}
	b.create(policy)
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	b.create(binding)
	b.t.Cleanup(func() {
		ctx := context.WithoutCancel(b.t.Context())
		_, _ = admin.Delete(ctx, binding), admin.Delete(ctx, policy)
	})
	for range 200 {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, GenerateName: "probe-"}}
		probe.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
		if err := admin.Create(b.t.Context(), probe, client.DryRunAll); err != nil {
			b.t.Fatal(err)
		}
		if len(probe.Spec.Containers) == 2 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatal("the policy is not in force")
}

// A link Secret that somebody deletes before its pod starts keeps that pod from starting; the
// next pod has one of its own.
func TestALinkSecretThatIsDeleted(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	for _, s := range b.secrets() {
		if err := admin.Delete(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	b.step()
	b.wants("RunnerReady=False/PodPending", "Completed=False/Running")
	if err := admin.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.step()
	b.start()
	b.until("Ready=True/Running")
	if n := len(b.secrets()); n != 1 || podspec.PodName(b.session()) != b.pod().Name {
		t.Errorf("%d link Secrets", n)
	}
}
