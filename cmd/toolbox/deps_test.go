// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The toolbox speaks to nobody but the agent's socket: what it links says so.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("listing dependencies: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("only %d dependencies were listed", len(deps))
	}
	for _, d := range deps {
		for _, never := range []string{"k8s.io/", "sigs.k8s.io/", "net/http", "github.com/agentsession-dev/operator/internal/agent",
			"github.com/agentsession-dev/operator/controllers", "github.com/agentsession-dev/operator/internal/runner/runnertest", "testing"} {
			if d == never || strings.HasPrefix(d, strings.TrimSuffix(never, "/")+"/") {
				t.Errorf("the toolbox links %s", d)
			}
		}
	}
}

// Confining the whole program, or as much as happens to be possible, is never right here.
func TestNothingConfinesByChance(t *testing.T) {
	out, err := exec.Command("grep", "-rln", "--include=*.go", "BestEffort", "../../internal/runner").Output()
	if err == nil {
		t.Errorf("BestEffort is used in %s", out)
	}
}
