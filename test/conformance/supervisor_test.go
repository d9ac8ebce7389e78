// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

var (
	readOnly  = policy.Profile{Mode: policy.ReadOnly}
	workspace = policy.Profile{Mode: policy.WorkspaceWrite}
	danger    = policy.Profile{Mode: policy.DangerFullAccess}
)

// connect starts a container and accepts its supervisor.
func connect(t *testing.T, p *runnertest.Pod, container string, bound policy.Profile, o runnertest.Options) (*runnertest.Container, *runnertest.Agent, *runnertest.Link) {
	t.Helper()
	a, err := runnertest.NewAgent(p.Ctl(container))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	c := p.Start(t, container, o)
	l, err := a.Accept(wire.Epoch{Boot: 1}, bound, 20*time.Second)
	if err != nil {
		t.Fatalf("accepting the supervisor: %v\n%s", err, c.Log())
	}
	t.Cleanup(l.Close)
	return c, a, l
}

func call(t *testing.T, l *runnertest.Link, p policy.Profile, name, args string) runnertest.Result {
	t.Helper()
	r, err := l.Call(p, wire.Workspace, name, args)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestACallRunsInEveryMode(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	if err := os.WriteFile(p.Path("workspace/hello.txt"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, prof := range []policy.Profile{readOnly, workspace, danger} {
		t.Run(prof.Mode.String(), func(t *testing.T) {
			_, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{})
			if l.Hello.Enforcement.Level != wire.LevelFull {
				t.Fatalf("enforcement = %+v, want Full", l.Hello.Enforcement)
			}
			r := call(t, l, prof, "bash", `{"command":"cat hello.txt; id -u; exit 3"}`)
			if r.Cause != wire.Finished || r.Status != 3 || !strings.HasPrefix(r.Output, "hello\n65533\n") {
				t.Errorf("bash: %+v", r)
			}
			r = call(t, l, prof, "read", `{"path":"hello.txt"}`)
			if r.Cause != wire.Finished || r.Status != 0 || r.Output != "hello\n" {
				t.Errorf("read: %+v", r)
			}
			r = call(t, l, prof, "write", `{"path":"new/file.txt","content":"x"}`)
			if prof == readOnly {
				if r.Status != 1 || r.Denial != wire.DeniedWrite {
					t.Errorf("write in read-only: %+v", r)
				}
			} else if r.Status != 0 || r.Denial != "" {
				t.Errorf("write: %+v", r)
			}
		})
	}
}
