// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// On a kernel without scopes the file rules hold as they do everywhere else.
func TestWithoutScopes(t *testing.T) {
	for abi, modes := range map[string][]policy.Mode{"abi5": policy.Modes(), "abi3": {policy.WorkspaceWrite}} {
		for _, m := range modes {
			t.Run(abi+" "+m.String(), func(t *testing.T) {
				p := runnertest.NewPod(t, mutant(t, abi))
				prof := policy.Profile{Mode: m}
				c, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{})
				if e := l.Hello.Enforcement; e.Level != wire.LevelFiles || e.Detail == "" {
					t.Fatalf("enforcement = %+v, want Files", e)
				}
				at := place(p)
				at.NoScopes = true
				findings, err := conformance.Run(caller{l}, at, m)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range findings {
					r := rows[f.Row]
					if f.Verdict == conformance.Fail || f.Verdict == conformance.Skip && r.Layer != conformance.OfScopes && !r.InTerminal {
						t.Errorf("%s: %s: %s", f.Row, f.Verdict, f.Why)
					}
				}
				wantEmpty(t, c)
			})
		}
	}
}

// Without scopes a call runs alone, and what it leaves is swept before its end is told.
func TestWithoutScopesCallsRunAlone(t *testing.T) {
	p := runnertest.NewPod(t, mutant(t, "abi5"))
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	id := start(t, l, workspace, hydra+"echo up > up; sleep 1000")
	awaitFile(t, p.Path("workspace/up"))
	if r := call(t, l, workspace, "bash", `{"command":"touch second"}`); r.Cause != wire.Refused {
		t.Errorf("a second call: %+v", r)
	}
	wantAbsent(t, p.Path("workspace/second"))
	if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: id}}); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, l, id); r.Cause != wire.Cancelled {
		t.Errorf("the stopped call: %+v", r)
	}
	wantEmpty(t, c)
	r := call(t, l, workspace, "bash", `{"command":"setsid sleep 1000 >/dev/null 2>&1 & echo left"}`)
	if r.Cause != wire.Finished || r.Output != "left\n" || r.Processes != 1 {
		t.Errorf("a call that leaves a daemon: %+v", r)
	}
	wantEmpty(t, c)
	if n, err := l.Narrow(readOnly); err != nil || n.Killed != 0 {
		t.Errorf("narrowing: %+v, %v", n, err)
	}
}

// Without Landlock, for whatever reason, read-only alone runs, on the mount and the filter.
func TestWithoutLandlockInTheKernel(t *testing.T) {
	for _, answer := range []syscall.Errno{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPERM} {
		t.Run(answer.Error(), func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			if err := os.WriteFile(p.Path("workspace/hello.txt"), []byte("hello\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			c, _, l := connect(t, p, wire.ToolsRO, readOnly, runnertest.Options{NoLandlock: answer})
			if e := l.Hello.Enforcement; e.Level != wire.LevelMount || !strings.Contains(e.Detail, answer.Error()) {
				t.Fatalf("enforcement = %+v, want Mount", e)
			}
			if r := call(t, l, readOnly, "bash", `{"command":"cat hello.txt; setsid sleep 1000 >/dev/null 2>&1 &"}`); r.Status != 0 || r.Output != "hello\n" || r.Processes != 1 {
				t.Errorf("a call that reads: %+v", r)
			}
			wantEmpty(t, c)
			if answer == syscall.ENOSYS {
				wantWorkspaceRows(t, p, l)
			}
			_, _, rw := connect(t, p, wire.ToolsRW, danger, runnertest.Options{NoLandlock: answer})
			for _, prof := range []policy.Profile{workspace, danger} {
				if r := call(t, rw, prof, "bash", `{"command":"touch ran"}`); r.Cause != wire.SetupFailed || r.Detail == "" {
					t.Errorf("%s: %+v", prof.Mode, r)
				}
			}
			wantAbsent(t, p.Path("workspace/ran"))
		})
	}
}

// Without Landlock and without the mount nothing would be left but a list of calls.
func TestWithoutLandlockAndMountNothingRuns(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRO, readOnly, runnertest.Options{NoLandlock: syscall.ENOSYS, WritableMount: true})
	if e := l.Hello.Enforcement; e.Level != wire.LevelNone || e.Detail == "" {
		t.Errorf("enforcement = %+v, want None", e)
	}
	if r := call(t, l, readOnly, "bash", `{"command":"true"}`); r.Cause != wire.SetupFailed {
		t.Errorf("a call: %+v", r)
	}
}

// wantWorkspaceRows holds read-only to what it promises of the workspace: the mount
// promises no more.
func wantWorkspaceRows(t *testing.T, p *runnertest.Pod, l *runnertest.Link) {
	t.Helper()
	at := place(p)
	at.NoScopes = true
	findings, err := conformance.Run(caller{l}, at, policy.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, f := range findings {
		if r := rows[f.Row]; r.Layer != conformance.OfWorkspace || r.InTerminal {
			continue
		}
		tried++
		if f.Verdict != conformance.Pass {
			t.Errorf("%s: %s: %s", f.Row, f.Verdict, f.Why)
		}
	}
	if tried < 30 {
		t.Errorf("only %d rows of the workspace were tried", tried)
	}
}
