// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Somebody deletes the link Secret of a pod before a node has started it: the kubelet waits for
// it, and gets it again.
func TestALinkSecretIsDeletedBeforeThePodStarts(t *testing.T) {
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	node := must(t)(kube.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"))
	must(t)(kube.Kubectl(t.Context(), "label", "node", node, "e2e-gate-"))
	must(t)(kube.Apply(t.Context(), class("e2e-gate", "  ceiling: => "+"  scheduling: {nodeSelector: {e2e-gate: open}}\n  ceiling:")))
	t.Cleanup(func() {
		_, _ = kube.Kubectl(cleanup(t), "delete", "agsc", "e2e-gate", "--ignore-not-found")
		_, _ = kube.Kubectl(cleanup(t), "label", "node", node, "e2e-gate-")
	})
	must(t)(kube.Apply(t.Context(), manifest(s.key, "e2e-gate", "read-only")))
	var pod string
	eventually(t, "the pod waits for a node", func() bool { pod = s.pod(); return pod != "" })
	secrets := func() string {
		return must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "secrets", "-l", "agentsession.dev/session=s", "-o", "name"))
	}
	before := strings.TrimSpace(secrets())
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "delete", before))
	must(t)(kube.Kubectl(t.Context(), "label", "node", node, "e2e-gate=open"))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=120s"))
	if now := strings.TrimSpace(secrets()); now != before || s.pod() != pod {
		t.Errorf("Secret %s and pod %s became %s and %s", before, pod, now, s.pod())
	}
	s.ask("say something")
}
