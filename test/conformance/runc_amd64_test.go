// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os/exec"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// seccompProfile is what contrib/seccomp of containerd v2.2.9 (Apache-2.0) gives a
// container without capabilities on amd64: the profile RuntimeDefault of its nodes.
const seccompProfile = "testdata/containerd-v2.2.9-seccomp-amd64.json"

// Every promise once more, in containers as a node makes them.
func TestPromisesInRunc(t *testing.T) {
	if _, err := exec.LookPath("runc"); err != nil {
		t.Fatalf("%v: run make conformance, which installs it", err)
	}
	var all []conformance.Finding
	where := conformance.Where{Runtime: "runc", Seccomp: true}
	for _, m := range policy.Modes() {
		t.Run(m.String(), func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			prof := policy.Profile{Mode: m}
			container := wire.ContainerFor(prof)
			a, err := runnertest.NewAgent(p.Ctl(container))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			c := p.StartInRunc(t, container, seccompProfile, runnertest.Options{AgentTimeout: 30 * time.Second})
			l, err := a.Accept(wire.Epoch{Boot: 1}, prof, 20*time.Second)
			if err != nil {
				t.Fatalf("accepting the supervisor: %v\n%s", err, c.Log())
			}
			defer l.Close()
			if e := l.Hello.Enforcement; e.Level != wire.LevelFull {
				t.Errorf("enforcement = %+v", e)
			}
			findings := suite(t, p, l, m)
			all, where.Enforcement = append(all, findings...), l.Hello.Enforcement
			for _, f := range findings {
				if f.Verdict != conformance.Pass {
					t.Errorf("%s: %s: %s", f.Row, f.Verdict, f.Why)
				}
			}
		})
	}
	save(t, "runc", where, all)
}
