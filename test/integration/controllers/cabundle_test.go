// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
)

// A class whose CA bundle is none starts nothing and says why. Corrected, it starts; and of an agent that
// runs the next bundle is told at once, without another pod.
func TestTheCABundleOfAClass(t *testing.T) {
	first, second := modeltest.NewRoot(t, "first"), modeltest.NewRoot(t, "second")
	b := newBench(t)
	give := func(bundle string) {
		t.Helper()
		b.class.Spec.Model.CABundle = bundle
		if err := admin.Update(t.Context(), b.class); err != nil {
			t.Fatal(err)
		}
	}
	give(strings.Replace(first.PEM, "M", "=", 1))
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.wants("Accepted=False/CABundleInvalid", "Ready=False/CABundleInvalid", "Stalled=True/CABundleInvalid", "RunnerReady=False/NotAccepted")
	if b.pod() != nil || len(b.secrets()) > 0 {
		t.Error("something was created for a class that is not accepted")
	}
	b.quiet()

	give(first.PEM)
	b.step()
	b.start()
	b.until("Ready=True/Running")
	pod := b.pod()
	give(second.PEM)
	b.step()
	pushes := b.agent.Pushes()
	if got := pushes[0].Config.Model.CABundle; got != first.PEM {
		t.Errorf("the agent was given the bundle %q", got)
	}
	if got := pushes[len(pushes)-1].Config.Model.CABundle; got != second.PEM {
		t.Errorf("after the change the agent has the bundle %q", got)
	}
	b.wants("Outdated=False/Current", "Ready=True/Running")
	if now := b.pod(); now.UID != pod.UID {
		t.Error("the pod was replaced")
	}
	b.quiet()

	// A running session keeps what it may do under a class that is broken later.
	give("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
	b.step()
	b.wants("Accepted=False/CABundleInvalid", "Ready=False/CABundleInvalid")
	if now := b.pod(); now == nil || now.UID != pod.UID {
		t.Error("the pod of a running session went because of a class that is not accepted")
	}
	b.quiet()
}
