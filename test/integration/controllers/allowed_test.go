// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

func (b *bench) labelNamespace(key, value string) {
	b.t.Helper()
	n := &corev1.Namespace{}
	if err := admin.Get(b.t.Context(), client.ObjectKey{Name: b.name.Namespace}, n); err != nil {
		b.t.Fatal(err)
	}
	before := n.DeepCopy()
	if n.Labels[key] = value; value == "" {
		delete(n.Labels, key)
	}
	if err := admin.Patch(b.t.Context(), n, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
}

// A class has sessions where it allows them: elsewhere nothing is made, and what runs when its
// namespace is not allowed any more keeps what it has, gets nothing wider and starts nothing.
func TestAClassAllowsNamespaces(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.AllowedNamespaces = &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSelector,
			Selector: &v1alpha1.Selector{MatchLabels: map[string]v1alpha1.LabelValue{"agents": "welcome"}}}
	})
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.wants("Accepted=False/NamespaceNotAllowed", "RunnerReady=False/NotAccepted", "Ready=False/NamespaceNotAllowed", "Stalled=True/NamespaceNotAllowed")
	if b.pod() != nil || len(b.secrets()) > 0 {
		t.Error("something was created for a session that is not accepted")
	}
	b.quiet()

	b.labelNamespace("agents", "welcome")
	b.step()
	b.bind()
	b.start()
	b.until("Ready=True/Running")
	b.labelNamespace("agents", "")
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.step()
	b.wants("Accepted=False/NamespaceNotAllowed", "Ready=False/NamespaceNotAllowed", "Stalled=True/NamespaceNotAllowed")
	if got := b.session().Status.Policy.Mode; got != v1alpha1.ModeReadOnly || b.pod() == nil {
		t.Errorf("mode %s, pod %v: want read-only and the pod that it has", got, b.pod() != nil)
	}
	b.losePod()
	b.step()
	if b.pod() != nil {
		t.Error("a pod was started in a namespace that is not allowed")
	}
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.AllowedNamespaces.From, c.AllowedNamespaces.Selector = v1alpha1.NamespacesFromAll, nil
	})
	b.step()
	b.start()
	b.until("Ready=True/Running")
	b.until("ModeApplied=True/Applied")
}
