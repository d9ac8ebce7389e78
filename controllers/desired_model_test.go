// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// All that a class says about its model reaches the agent.
func TestWireModel(t *testing.T) {
	got := wireModel(v1alpha1.Model{
		Provider: v1alpha1.ProviderAnthropic, BaseURL: "https://model.example", DefaultName: "d",
		ContextWindow: 5000, ReturnReasoning: true, KeySecretName: "key", CABundle: "pem",
	}, "m")
	want := wire.Model{
		Provider: "Anthropic", BaseURL: "https://model.example", Name: "m",
		ContextWindow: 5000, ReturnReasoning: true, KeySecret: "key", CABundle: "pem",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wireModel() (-want +got):\n%s", diff)
	}
}
