// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// A command that uses up the memory of its container is ended; the model is told why, an event of
// the session says what to do, and the session goes on. The kernel ends one process or all of the
// container (control groups of version 1 and 2); here the first is always seen, and then the second.
func TestAToolsContainerRunsOutOfMemory(t *testing.T) {
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	must(t)(kube.Apply(t.Context(), class("e2e-memory", "  ceiling: => "+"  resources: {toolsRW: {limits: {memory: 96Mi}}}\n  ceiling:")))
	t.Cleanup(func() { _, _ = kube.Kubectl(cleanup(t), "delete", "agsc", "e2e-memory", "--ignore-not-found") })
	must(t)(kube.Apply(t.Context(), manifest(s.key, "e2e-memory", "workspace-write")))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))
	pod := podUID(t, s.key.Namespace, s.pod())

	s.ask("use up the memory")
	if r := s.results(); len(r) != 1 || !strings.Contains(r[0], "memory") || strings.Contains(r[0], "536870912") {
		t.Errorf("the model is told %q", r)
	}
	s.tellsOfMemory("tools-rw used up its memory")
	s.goesOn(pod)

	m := inCall(s)
	kill9(t, pod, "supervise", "--container", "tools-rw") // what the kernel does where it ends all of a container
	s.answered(m)
	s.tellsOfMemory("was ended with all that ran in it")
	s.checkAfterCrash(t)
	s.goesOn(pod)
}

// tellsOfMemory waits for an event that says that, and what to do.
func (s *session) tellsOfMemory(what string) {
	s.t.Helper()
	var notes string
	eventually(s.t, "an event says that "+what, func() bool {
		notes = must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "get", "events", "--field-selector=reason="+v1alpha1.ReasonOutOfMemory,
			"-o", "jsonpath={range .items[*]}{.type} {.involvedObject.kind}: {.message}{\"\\n\"}{end}"))
		return strings.Contains(notes, what)
	})
	if !strings.Contains(notes, "Warning AgentSession: ") || !strings.Contains(notes, "raise resources.toolsRW.limits.memory of class e2e-memory") {
		s.t.Errorf("the events are\n%s", notes)
	}
}

// goesOn checks that the session works on in the same pod.
func (s *session) goesOn(pod string) {
	s.t.Helper()
	if got := s.ask("say something"); got.Status.Reply != "something" {
		s.t.Errorf("the next message is answered with %q", got.Status.Reply)
	}
	eventually(s.t, "the session is ready", func() bool { return cluster.Is(s.get(), v1alpha1.ConditionReady, metav1.ConditionTrue) })
	if now := podUID(s.t, s.key.Namespace, s.pod()); now != pod {
		s.t.Errorf("the pod was replaced")
	}
	s.verifyLog()
}
