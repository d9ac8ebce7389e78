// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// The suite is evidence only if it fails when a layer is missing, and read-only is
// locked twice only if it holds when either lock is taken away.
func TestWithoutALayer(t *testing.T) {
	const all = "landlock seccomp selftest"
	for name, tc := range map[string]struct {
		mutation      string
		writableMount bool
		container     string
		mode          policy.Mode
		redAll        bool // some row must fail
		redWorkspace  bool // some row of the workspace must fail
	}{
		"read-only holds without the mount":                   {"", true, wire.ToolsRO, policy.ReadOnly, false, false},
		"read-only of the workspace holds by the mount alone": {all, false, wire.ToolsRO, policy.ReadOnly, true, false},
		"without both, read-only is red":                      {all, true, wire.ToolsRO, policy.ReadOnly, true, true},
		"with seccomp alone, read-only is red":                {"landlock selftest", true, wire.ToolsRO, policy.ReadOnly, true, true},
		"with Landlock alone, read-only is red":               {"seccomp selftest", true, wire.ToolsRO, policy.ReadOnly, true, true},
		"without Landlock, workspace-write is red":            {"landlock selftest", false, wire.ToolsRW, policy.WorkspaceWrite, true, false},
		"without seccomp, workspace-write is red":             {"seccomp selftest", false, wire.ToolsRW, policy.WorkspaceWrite, true, false},
		"without Landlock, danger-full-access is red":         {"landlock selftest", false, wire.ToolsRW, policy.DangerFullAccess, true, false},
		"without seccomp, danger-full-access is red":          {"seccomp selftest", false, wire.ToolsRW, policy.DangerFullAccess, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			if tc.mutation != "" {
				p.Toolbox = mutant(t, tc.mutation)
			}
			prof := policy.Profile{Mode: tc.mode}
			_, _, l := connect(t, p, tc.container, prof, runnertest.Options{WritableMount: tc.writableMount})
			findings, err := conformance.Run(caller{l}, place(p), tc.mode)
			tried, red, redWorkspace := 0, 0, 0
			if err != nil { // without a layer, a row may end the supervisor itself
				red++
				t.Log(err)
			}
			for _, f := range findings {
				ofWorkspace := rows[f.Row].Layer == conformance.OfWorkspace
				if ofWorkspace {
					tried++
				}
				if f.Verdict == conformance.Pass {
					continue
				}
				red++
				if ofWorkspace {
					redWorkspace++
				}
				if !tc.redAll || ofWorkspace && !tc.redWorkspace {
					t.Errorf("%s: %s", f.Row, f.Why)
				}
			}
			if tried < 30 || err != nil && !tc.redAll {
				t.Errorf("%d rows of the workspace were tried, then: %v", tried, err)
			}
			if tc.redAll && red == 0 || tc.redWorkspace && redWorkspace == 0 {
				t.Errorf("the suite did not notice: %d rows failed, %d of the workspace", red, redWorkspace)
			}
			t.Logf("%d rows failed, %d of the workspace", red, redWorkspace)
		})
	}
}

// A sandbox that could not be put up is noticed before anything runs.
func TestABrokenLayerRunsNothing(t *testing.T) {
	for _, mutation := range []string{"landlock", "seccomp"} {
		t.Run("without "+mutation, func(t *testing.T) {
			p := runnertest.NewPod(t, mutant(t, mutation))
			for _, prof := range []policy.Profile{readOnly, workspace} {
				_, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{WritableMount: true})
				if e := l.Hello.Enforcement; e.Level == wire.LevelFull || e.Detail == "" {
					t.Errorf("%s: enforcement = %+v", prof.Mode, e)
				}
				r := call(t, l, prof, "bash", `{"command":"touch ran"}`)
				if r.Cause != wire.SetupFailed || r.Detail == "" {
					t.Errorf("%s: %+v", prof.Mode, r)
				}
				wantAbsent(t, p.Path("workspace/ran"))
			}
		})
	}
}

var rows = func() map[string]conformance.Row {
	m := map[string]conformance.Row{}
	for _, r := range conformance.Rows() {
		m[r.Name] = r
	}
	return m
}()
