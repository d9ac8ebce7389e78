// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// BenchmarkPlainExec is what a call costs without any sandbox.
func BenchmarkPlainExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/bash", "-c", "exec /bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConfinedCall is the same command as a call through a real supervisor, from
// start to exited. It needs root.
func BenchmarkConfinedCall(b *testing.B) {
	dir, err := os.MkdirTemp("", "toolbox")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	toolbox, err := Build(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	p := NewPod(b, toolbox)
	for _, prof := range []policy.Profile{{Mode: policy.ReadOnly}, {Mode: policy.WorkspaceWrite}} {
		b.Run(prof.Mode.String(), func(b *testing.B) {
			a, err := NewAgent(p.Ctl(wire.ContainerFor(prof)))
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			p.Start(b, wire.ContainerFor(prof), Options{})
			l, err := a.Accept(wire.Epoch{Boot: 1}, prof, 20*time.Second)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			for b.Loop() {
				r, err := l.Call(prof, wire.Workspace, "bash", `{"command":"exec /bin/true"}`)
				if err != nil || r.Cause != wire.Finished || r.Status != 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}
