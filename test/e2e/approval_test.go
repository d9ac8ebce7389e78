// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// column returns one column of the session in kubectl's table.
func (s *session) column(name string) string {
	s.t.Helper()
	head, row, _ := strings.Cut(must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "get", "ags", "s")), "\n")
	from := strings.Index(head, name)
	if from < 0 || len(row) < from {
		s.t.Fatalf("there is no column %s in %q", name, head)
	}
	value, _, _ := strings.Cut(row[from:], " ")
	return value
}

// A denied call is made once more as the denial says, and waits for a person. Silence is a denial, which
// the model hears of; and a switch of the mode does not wait for it, but ends it.
func TestACallWaitsForAPerson(t *testing.T) {
	s := newSession(t, "read-only")
	s.patch(`{"approval":{"timeoutSeconds":5}}`)
	if got := s.column("APPROVAL") + s.column("PENDING"); got != "ask0" {
		t.Errorf("kubectl get ags shows %q for approval and pending", got)
	}
	m := s.send("write with a grant")
	s.wait("condition=WaitingForApproval")
	if got := s.column("PENDING"); got != "1" {
		t.Errorf("kubectl get ags shows %q pending", got)
	}
	if got := s.answered(m); got.Status.Reply != "Nobody let me." {
		t.Errorf("the model says %q", got.Status.Reply)
	}
	eventually(t, "nothing waits any more", func() bool { return s.column("PENDING") == "0" })
	if !meta.IsStatusConditionFalse(s.get().Status.Conditions, v1alpha1.ConditionWaitingForApproval) {
		t.Error("WaitingForApproval stays True")
	}
	events := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "events", "--field-selector", "reason=WaitingForApproval", "-o", "name"))
	if strings.Count(events, "event") == 0 {
		t.Error("there is no event of it")
	}

	s.patch(`{"approval":{"timeoutSeconds":3600}}`)
	m = s.send("write with a grant")
	s.wait("condition=WaitingForApproval")
	s.switchTo("workspace-write")
	if got := s.answered(m); got.Status.Reply != "It was withdrawn." {
		t.Errorf("the model says %q", got.Status.Reply)
	}
	for _, e := range s.log() {
		if e.Type == "grant/used" {
			t.Errorf("a call ran that nobody had allowed: %v", e)
		}
	}
	if out, err := s.sh("ls granted.txt"); err == nil {
		t.Errorf("it was written: %s", out)
	}
	s.verifyLog()
}
