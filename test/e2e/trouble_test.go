// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// Whatever a person can get wrong ends in a condition whose message says what to do.
func TestTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		class     string // a change of the class: "old => new"; "-": no class at all
		condition string
		reason    string
		message   string // a part of it
		ask       bool   // the trouble shows when a message is sent
	}{
		"missing class":        {class: "-", condition: "Accepted", reason: v1alpha1.ReasonClassNotFound, message: "create"},
		"missing image":        {class: "tools: agentsession.dev/ => tools: missing.invalid/", condition: "RunnerReady", reason: v1alpha1.ReasonImagePullFailed, message: "missing.invalid"},
		"missing key":          {class: "insecureHTTP: true => insecureHTTP: true\n    keySecretName: not-there", condition: "RunnerReady", reason: v1alpha1.ReasonModelKeyMissing, message: "not-there"},
		"model refuses":        {class: ".svc:8080 => .svc:81", condition: "Ready", reason: v1alpha1.ReasonModelUnavailable, message: ":81", ask: true},
		"model has no name":    {class: "replay-model. => no-such-model.", condition: "Ready", reason: v1alpha1.ReasonModelUnavailable, message: "no-such-model", ask: true},
		"model talks nonsense": {class: ":8080/v1 => :8080/healthz", condition: "Ready", reason: v1alpha1.ReasonModelUnavailable, message: "model", ask: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
			className := "e2e-" + strings.ReplaceAll(name, " ", "-")
			if tc.class != "-" {
				must(t)(kube.Apply(t.Context(), class(className, tc.class)))
			}
			must(t)(kube.Apply(t.Context(), manifest(s.key, className, "read-only")))
			if tc.ask {
				must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))
				m := s.ask("say something")
				if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAnswered); c.Reason != v1alpha1.ReasonTurnFailed {
					t.Errorf("Answered has reason %s", c.Reason)
				}
			}
			eventually(t, tc.condition+" is False with "+tc.reason, func() bool {
				c := meta.FindStatusCondition(s.get().Status.Conditions, tc.condition)
				return c != nil && c.Status != "True" && c.Reason == tc.reason && strings.Contains(c.Message, tc.message)
			})
		})
	}
}

func TestAMessageToNobodySaysSo(t *testing.T) {
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "nobody"}}
	name := s.send("hello")
	eventually(t, "Delivered is False", func() bool {
		var m v1alpha1.SessionMessage
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, &m); err != nil {
			return false
		}
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDelivered)
		return c != nil && c.Status == "False" && c.Reason == v1alpha1.ReasonSessionNotFound
	})
}

func TestInstallingTwiceSaysSo(t *testing.T) {
	_, err := kube.Helm(t.Context(), "install", "agentsession", root+"/charts/agentsession", "--namespace", system)
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second helm install says %v", err)
	}
}

func TestColumnsReadWell(t *testing.T) {
	s := newSession(t, "read-only")
	s.ask("say something")
	out := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "ags", "-o", "wide"))
	head, row, _ := strings.Cut(out, "\n")
	if got := strings.Join(strings.Fields(head), " "); got != "NAME READY STATUS MODE APPROVAL PENDING AGE POD NODE MODEL TOKENS CACHED%" {
		t.Errorf("the columns are %s", got)
	}
	for _, want := range []string{"True", "Running", "read-only", "ask", "replay"} {
		if !strings.Contains(row, want) {
			t.Errorf("%s is not in %s", want, row)
		}
	}
	explained := must(t)(kube.Kubectl(t.Context(), "explain", "agentsession.spec"))
	for _, want := range []string{"sandbox", "approval", "prompt", "workspace"} {
		if !strings.Contains(explained, want) {
			t.Errorf("kubectl explain says nothing of %s", want)
		}
	}
}
