// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// kstatus is what Flux, Argo CD's generic check and `kubectl apply` tools make of the session
// as it stands in the apiserver.
func (b *bench) kstatus(want status.Status) {
	b.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgentSession"))
	if err := admin.Get(b.t.Context(), b.name, u); err != nil {
		b.t.Fatal(err)
	}
	got, err := status.Compute(u)
	if err != nil {
		b.t.Fatal(err)
	}
	if got.Status != want {
		b.t.Errorf("kstatus says %s (%s), want %s; conditions:\n%s", got.Status, got.Message, want, b.conditions())
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
