// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// unstructured is the session as programs read it that do not know its kind.
func (b *bench) unstructured() *unstructured.Unstructured {
	b.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgentSession"))
	if err := admin.Get(b.t.Context(), b.name, u); err != nil {
		b.t.Fatal(err)
	}
	return u
}

// kstatus is what Flux and `kubectl apply` tools make of the session as it stands in the apiserver, and
// Argo CD by the script of docs/operation.md.
func (b *bench) kstatus(want status.Status) {
	b.t.Helper()
	u := b.unstructured()
	got, err := status.Compute(u)
	if err != nil {
		b.t.Fatal(err)
	}
	if got.Status != want {
		b.t.Errorf("kstatus says %s (%s), want %s; conditions:\n%s", got.Status, got.Message, want, b.conditions())
	}
	// Argo CD has words of its own, and looks at the end of an object itself.
	if health, message := b.argo(u); want != status.TerminatingStatus && !slices.Contains(argoWords[want], health) {
		b.t.Errorf("Argo CD says %s (%s), want one of %v; conditions:\n%s", health, message, argoWords[want], b.conditions())
	}
}

var argoWords = map[status.Status][]string{
	status.InProgressStatus: {"Progressing"}, status.CurrentStatus: {"Healthy", "Suspended"}, status.FailedStatus: {"Degraded"},
}

// argoSays demands one word of Argo CD.
func (b *bench) argoSays(want string) {
	b.t.Helper()
	if got, message := b.argo(b.unstructured()); got != want {
		b.t.Errorf("Argo CD says %s (%s), want %s", got, message, want)
	}
}

// A session is read by kstatus as it is meant: never current before the operator has seen it or its
// newest generation, failed when somebody must act.
func TestKstatusReadsASession(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.apply(v1alpha1.ModeReadOnly)
	b.kstatus(status.InProgressStatus) // observedGeneration is -1
	b.step()
	b.kstatus(status.InProgressStatus)
	b.bind()
	b.start()
	b.until("Ready=True/Running")
	b.kstatus(status.CurrentStatus)
	b.argoSays("Healthy")

	b.agent.Drain()
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.kstatus(status.InProgressStatus) // the operator has not seen it
	b.step()
	b.kstatus(status.InProgressStatus) // it drains
	b.agent.Confirm(0)
	b.until("Ready=True/Running")
	b.kstatus(status.CurrentStatus)

	b.agent.Update(func(o *wire.Observed) { o.Problems = []wire.Problem{{Reason: wire.ModelUnavailable}} })
	b.pulse()
	b.until("Ready=False/ModelUnavailable")
	b.kstatus(status.InProgressStatus) // the next message tries again
	b.agent.Update(func(o *wire.Observed) { o.Problems = []wire.Problem{{Reason: wire.ModelKeyMissing}} })
	b.pulse()
	b.until("Stalled=True/ModelKeyMissing")
	b.kstatus(status.FailedStatus)
	b.agent.Update(func(o *wire.Observed) { o.Problems = nil })
	b.pulse()
	b.until("Ready=True/Running")

	b.patch(`{"suspend":true}`)
	b.until("Suspended=False/PodTerminating")
	b.kstatus(status.InProgressStatus)
	b.losePod()
	b.step()
	b.wants("Suspended=True/Suspended")
	b.kstatus(status.CurrentStatus)
	b.argoSays("Suspended")

	b.loseClaim()
	b.step()
	b.wants("Completed=True/StateLost")
	b.kstatus(status.FailedStatus)
	s := b.session()
	s.Finalizers = []string{"example.com/held"}
	if err := admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := client.IgnoreNotFound(admin.Delete(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	b.kstatus(status.TerminatingStatus)
	s = b.session()
	s.Finalizers = nil
	if err := admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
