// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// The suite as a command, where no supervisor and no agent is: what a node is asked with.
func TestTheCommandReports(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c := p.Start(t, wire.ToolsRW, runnertest.Options{Command: []string{"/toolbox/toolbox", "conformance",
		"--outside", runnertest.Extra, "--runtime", "namespaces", "--report", "/workspace/report.yaml"}})
	if err := c.Wait(); err != nil {
		t.Errorf("the command ended with %v", err)
	}
	b, err := os.ReadFile(p.Path("workspace/report.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Where struct {
			Kernel, Level, Runtime string
			LandlockABI            int
			NoNewPrivs             bool
		}
		Passed, Failed, Skipped int
		Findings                []struct{ Row, Mode, Verdict, Why string }
	}
	if err := yaml.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Where.Level != string(wire.LevelFull) || r.Where.Runtime != "namespaces" || r.Where.Kernel == "" || !r.Where.NoNewPrivs {
		t.Errorf("the report is of %+v", r.Where)
	}
	if r.Failed != 0 || r.Skipped != 0 || r.Passed < 400 || len(r.Findings) != r.Passed {
		t.Errorf("%d passed, %d failed, %d were skipped", r.Passed, r.Failed, r.Skipped)
	}
}

// Where it has privileges it tries nothing: it would change the machine.
func TestTheCommandRefusesPrivileges(t *testing.T) {
	out, err := runToolbox("conformance", "--workspace", t.TempDir())
	if err == nil || !strings.Contains(out, "has privileges") {
		t.Errorf("as root: %v, %s", err, out)
	}
}
