// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The operator must not contain what runs in the pod: they share nothing but policy
// and wire.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../../controllers/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const module = "github.com/agentsession-dev/operator/"
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("go list names only %d packages", len(deps))
	}
	for _, d := range deps {
		for _, never := range []string{"internal/agent", "internal/runner", "internal/tool"} {
			if d == module+never || strings.HasPrefix(d, module+never+"/") {
				t.Errorf("the operator links %s", d)
			}
		}
	}
}

func TestFlagsSayWhatIsMissing(t *testing.T) {
	env := map[string]string{"POD_NAMESPACE": "agentsession-system", "AGENT_IMAGE": "agent:1"}
	if _, err := parseFlags(nil, func(k string) string { return env[k] }); err != nil {
		t.Errorf("with both variables: %v", err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":     {[]string{"--agent-image", "agent:1"}, "set --namespace or POD_NAMESPACE"},
		"no image":         {[]string{"--namespace", "ns"}, "set --agent-image or AGENT_IMAGE"},
		"no labels":        {[]string{"--namespace", "ns", "--agent-image", "a", "--operator-labels", ""}, `--operator-labels "" are no labels`},
		"half a label":     {[]string{"--namespace", "ns", "--agent-image", "a", "--operator-labels", "manager"}, "write them as name=value"},
		"a stray argument": {[]string{"--namespace", "ns", "--agent-image", "a", "x"}, `unexpected argument "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseFlags(tc.args, func(string) string { return "" })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("parseFlags(%q) = %v, want %q", tc.args, err, tc.want)
			}
		})
	}
}
