// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/wire"
)

// BenchmarkCall runs one command in every way in turn, so that what else the machine
// does falls on all alike, and reports the medians: plain fork and exec,
// calls through a real supervisor from start to
// exited, and bubblewrap where it is installed. It needs root.
func BenchmarkCall(b *testing.B) {
	ways := map[string]func() error{
		"plain": func() error {
			c := exec.Command("/bin/bash", "-c", "exec /bin/true")
			c.Env, c.Dir = call.Environment("/tmp"), "/tmp"
			return c.Run()
		},
	}
	toolbox := buildFor(b)
	for _, mode := range policy.Modes() {
		prof := policy.Profile{Mode: mode}
		ways[mode.String()] = throughSupervisor(b, NewPod(b, toolbox), prof)
	}
	if path, err := exec.LookPath("bwrap"); err == nil {
		ways["bubblewrap"] = func() error {
			c := exec.Command(path, bubblewrap...)
			c.Env = call.Environment("/tmp")
			return c.Run()
		}
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, run := range ways {
			start := time.Now()
			if err := run(); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			took[name] = append(took[name], time.Since(start))
		}
	}
	plain := median(took["plain"])
	for name, times := range took {
		b.ReportMetric(float64(median(times).Microseconds())/1000, name+"-ms")
		if name != "plain" {
			b.ReportMetric(float64((median(times)-plain).Microseconds())/1000, name+"-over-plain-ms")
		}
	}
	b.ReportMetric(0, "ns/op") // all ways in a row mean nothing
}

// bubblewrap confines as workspace-write does, as far as it can.
var bubblewrap = []string{"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev",
	"--proc", "/proc", "--tmpfs", "/tmp", "--", "/bin/bash", "-c", "exec /bin/true"}

func buildFor(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "toolbox") //nolint:usetesting // other users go there; into b.TempDir only its owner may
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	toolbox, err := Build(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	return toolbox
}

func throughSupervisor(b *testing.B, p *Pod, prof policy.Profile) func() error {
	b.Helper()
	a, err := NewAgent(p.Ctl(wire.ContainerFor(prof)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(a.Close)
	p.Start(b, wire.ContainerFor(prof), Options{})
	l, err := a.Accept(wire.Epoch{Boot: 1}, prof, 20*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return func() error {
		r, err := l.Call(prof, wire.Workspace, "bash", `{"command":"exec /bin/true"}`)
		if err == nil && (r.Cause != wire.Finished || r.Status != 0) {
			err = fmt.Errorf("%+v", r)
		}
		return err
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
