// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// inCall starts a command that does not end by itself, and returns its message once it writes.
func inCall(s *session) string {
	m := s.send("write without end")
	eventually(s.t, "the command writes", func() bool {
		_, err := s.sh("test -s /workspace/ticks")
		return err == nil
	})
	return m
}

func TestKillTheAgentInTheMiddleOfATurn(t *testing.T) {
	s := newSession(t, "workspace-write")
	m := inCall(s)
	kill9(t, podUID(t, s.key.Namespace, s.pod()), "agent", "run", "--session-uid")
	s.answered(m)
	s.checkAfterCrash(t)
	if sizes := strings.Fields(must(t)(s.sh("stat -c %s /workspace/ticks; sleep 0.2; stat -c %s /workspace/ticks"))); sizes[0] != sizes[1] {
		t.Errorf("the command of the lost turn still writes: %v", sizes)
	}
}

func TestKillAToolsContainerInTheMiddleOfATurn(t *testing.T) {
	s := newSession(t, "workspace-write")
	m := inCall(s)
	kill9(t, podUID(t, s.key.Namespace, s.pod()), "supervise", "--container", "tools-rw")
	s.answered(m)
	s.checkAfterCrash(t)
}

func TestKillTheOperatorInTheMiddleOfATurn(t *testing.T) {
	s := newSession(t, "workspace-write")
	m := inCall(s)
	pod := must(t)(kube.Kubectl(t.Context(), "-n", system, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}"))
	kill9(t, podUID(t, system, pod), "manager")
	s.switchTo("read-only") // the new operator carries it out
	s.answered(m)
	if r := s.results(); !strings.Contains(r[len(r)-1], "the sandbox was narrowed") {
		t.Errorf("the last result is %s", r[len(r)-1])
	}
	s.ask("say something")
	s.verifyLog()
}

// checkAfterCrash checks what must hold after a crash in the middle of a call.
func (s *session) checkAfterCrash(t *testing.T) {
	t.Helper()
	s.verifyLog()
	unknown := false
	for _, r := range s.results() {
		unknown = unknown || strings.Contains(r, "outcome unknown")
	}
	if !unknown {
		t.Errorf("no open call is marked outcome unknown: %v", s.results())
	}
	if got := s.ask("say something"); got.Status.Reply != "something" {
		t.Errorf("the next message is answered with %q", got.Status.Reply)
	}
	eventually(t, "the session is ready again", func() bool {
		return cluster.Is(s.get(), v1alpha1.ConditionReady, metav1.ConditionTrue)
	})
	s.verifyLog()
}

func TestACommandCannotPassForASupervisorWhileTheAgentRestarts(t *testing.T) {
	s := newSession(t, "danger-full-access")
	uid := podUID(t, s.key.Namespace, s.pod())
	for range 3 {
		m := s.send("impersonate the supervisor")
		eventually(t, "the impostor runs", func() bool {
			_, err := s.sh("test -e /workspace/impostor-runs")
			return err == nil
		})
		kill9(t, uid, "agent", "run", "--session-uid")
		s.answered(m)
		if got := s.ask("say something"); got.Status.Reply != "something" {
			t.Errorf("after the restart the answer is %q", got.Status.Reply)
		}
		if out, err := s.sh("cat /workspace/ACCEPTED"); err == nil {
			t.Fatalf("the agent took a command for a supervisor: %s", out)
		}
	}
	s.verifyLog()
}

func TestTheLossOfThePodEndsTheSession(t *testing.T) {
	s := newSession(t, "read-only")
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "delete", "pod", s.pod(), "--wait"))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s",
		"--for=jsonpath={.status.conditions[?(@.type==\"Completed\")].reason}=StateLost", "--timeout=30s"))
	if out := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "pods", "-o", "name")); out != "" {
		t.Errorf("a second pod was made: %s", out)
	}
}
