// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// leader is the pod of the operator that works; "" when none does.
func leader(t *testing.T) string {
	t.Helper()
	holder := must(t)(kube.Kubectl(t.Context(), "-n", system, "get", "lease", "agentsession-operator", "-o", "jsonpath={.spec.holderIdentity}"))
	pod, _, _ := strings.Cut(holder, "_")
	return pod
}

// replicas sets how many operators there are, and waits for them.
func replicas(ctx context.Context, t *testing.T, n string) {
	t.Helper()
	must(t)(kube.Kubectl(ctx, "-n", system, "scale", "deploy/agentsession-manager", "--replicas="+n))
	must(t)(kube.Kubectl(ctx, "-n", system, "rollout", "status", "deploy/agentsession-manager", "--timeout=60s"))
}

// The leader goes while a turn runs, in order and then by a kill: the session does not notice.
// Nothing in status says that the runner is not ready, the turn goes on in the same pod and is
// answered once, and what is patched meanwhile is applied by the next leader.
func TestTheLeaderChangesInTheMiddleOfATurn(t *testing.T) {
	replicas(t.Context(), t, "2")
	t.Cleanup(func() { replicas(cleanup(t), t, "1") })
	for name, end := range map[string]func(t *testing.T, pod string){
		"evicted": func(t *testing.T, pod string) {
			must(t)(kube.Kubectl(t.Context(), "-n", system, "delete", "pod", pod, "--wait=false"))
		},
		"killed": func(t *testing.T, pod string) { kill9(t, podUID(t, system, pod), "manager", "--leader-elect") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, "workspace-write")
			pod := podUID(t, s.key.Namespace, s.pod())
			m := s.send("count slowly")
			eventually(t, "the command runs", func() bool { _, err := s.sh("test -s /workspace/numbers"); return err == nil })
			distrust := s.distrust()

			first := leader(t)
			end(t, first)
			took := s.switchTo("danger-full-access")
			if now := leader(t); now == "" || now == first && name == "evicted" {
				t.Errorf("after %s the leader is %q", first, now)
			}
			if out := must(t)(s.sh("tail -n 1 /workspace/numbers")); strings.TrimSpace(out) == "400" {
				t.Error("the turn was over before the next leader came, so nothing is shown")
			}
			t.Logf("the patch was applied by the next leader after %s", took.Round(time.Millisecond))

			if got := s.answered(m); got.Status.Reply != "done" || got.Status.Turn != 1 {
				t.Errorf("the message has %+v", got.Status)
			}
			if numbers := must(t)(s.sh("cat /workspace/numbers")); numbers != counted(400) {
				t.Errorf("the command did not run once from beginning to end: %.200q", numbers)
			}
			if said := distrust(); len(said) > 0 {
				t.Errorf("status said on its way: %s", said[0])
			}
			s.checkOnce()
			s.goesOn(pod)
		})
	}
}

// distrust collects every moment in which status said that the runner is not ready.
func (s *session) distrust() func() []string {
	s.t.Helper()
	w, err := api.Watch(s.t.Context(), &v1alpha1.AgentSessionList{}, client.InNamespace(s.key.Namespace))
	if err != nil {
		s.t.Fatal(err)
	}
	var said []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			got, ok := e.Object.(*v1alpha1.AgentSession)
			if !ok {
				continue
			}
			for _, c := range []string{v1alpha1.ConditionRunnerReady, v1alpha1.ConditionEnforced} {
				if f := meta.FindStatusCondition(got.Status.Conditions, c); f != nil && f.Status != metav1.ConditionTrue {
					said = append(said, c+" is "+string(f.Status)+", "+f.Reason+": "+f.Message)
				}
			}
		}
	}()
	return func() []string {
		w.Stop()
		<-done
		return said
	}
}

// checkOnce checks that the log has one boot, one turn and one call.
func (s *session) checkOnce() {
	s.t.Helper()
	n := map[string]int{}
	for _, e := range s.log() {
		n[e.Type]++
	}
	for _, once := range []string{"boot", "message/received", "user/message", "turn/start", "turn/end", "tool/start", "tool/result"} {
		if n[once] != 1 {
			s.t.Errorf("the log has %d of %s", n[once], once)
		}
	}
}

func counted(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintln(&text, i+1)
	}
	return text.String()
}
