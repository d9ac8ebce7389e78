// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The agent has no hands and no cluster: nothing that it links can start a process or
// speak to Kubernetes.
func TestTheAgentHasNoHandsAndNoCluster(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../../internal/agent/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list named %d packages only", len(deps))
	}
	for _, d := range deps {
		if d == "os/exec" || d == "plugin" || strings.HasPrefix(d, "k8s.io/") || strings.HasPrefix(d, "sigs.k8s.io/") ||
			strings.HasSuffix(d, "/internal/runner") || strings.Contains(d, "/internal/runner/") {
			t.Errorf("the agent must not link %s", d)
		}
	}
}
