// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// caller runs the suite's calls through a supervisor.
type caller struct{ link *runnertest.Link }

func (c caller) Call(p policy.Profile, tool, arguments string) (conformance.Result, error) {
	r, err := c.link.Call(p, wire.Workspace, tool, arguments)
	return conformance.Result{Exited: r.Exited, Output: r.Output}, err
}

func place(p *runnertest.Pod) conformance.Place {
	return conformance.Place{Toolbox: "/toolbox/toolbox", Workspace: wire.Workspace, Outside: runnertest.Extra,
		Host: p.Host, User: runnertest.ToolsUser}
}

func suite(t *testing.T, p *runnertest.Pod, l *runnertest.Link, m policy.Mode) []conformance.Finding {
	t.Helper()
	findings, err := conformance.Run(caller{l}, place(p), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) < 100 {
		t.Fatalf("only %d rows were tried", len(findings))
	}
	return findings
}

// Every promise, in every mode, in the container where the mode runs.
func TestPromises(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	var all []conformance.Finding
	where := conformance.Where{Runtime: "namespaces, no container runtime"}
	for _, m := range policy.Modes() {
		t.Run(m.String(), func(t *testing.T) {
			prof := policy.Profile{Mode: m}
			_, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{})
			findings := suite(t, p, l, m)
			all, where.Enforcement = append(all, findings...), l.Hello.Enforcement
			for _, f := range findings {
				if f.Verdict != conformance.Pass {
					t.Errorf("%s: %s: %s", f.Row, f.Verdict, f.Why)
				}
			}
		})
	}
	save(t, "kernel", where, all)
}
