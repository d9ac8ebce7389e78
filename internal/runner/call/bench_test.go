// SPDX-License-Identifier: Apache-2.0

package call_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// way is one in which the command is run. It measures itself: some are run elsewhere.
type way struct {
	name string
	run  func() (time.Duration, error)
}

func timed(run func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		err := run()
		return time.Since(start), err
	}
}

// BenchmarkCall runs one command in every way in turn, so that what else the machine does
// falls on all alike, and reports the medians: plain fork and exec, on the machine and in a
// container like that of the tools; the sandbox part by part; calls through a real
// supervisor from start to exited; and bubblewrap where it is installed. It needs root.
func BenchmarkCall(b *testing.B) {
	ways := []way{
		{"plain", timed(func() error { return plain("/tmp") })},
		{"plain-in-container", plainInContainer(b)},
	}
	ways = append(ways, stages(b)...)
	toolbox := buildFor(b)
	for _, mode := range policy.Modes() {
		prof := policy.Profile{Mode: mode}
		ways = append(ways, way{mode.String(), timed(throughSupervisor(b, runnertest.NewPod(b, toolbox), prof))})
	}
	if path, err := exec.LookPath("bwrap"); err == nil {
		ways = append(ways, way{"bubblewrap", timed(func() error {
			c := exec.Command(path, bubblewrap...)
			c.Env = call.Environment("/tmp")
			return c.Run()
		})})
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, w := range ways {
			d, err := w.run()
			if err != nil {
				b.Fatalf("%s: %v", w.name, err)
			}
			took[w.name] = append(took[w.name], d)
		}
	}
	for _, w := range ways {
		b.ReportMetric(float64(median(took[w.name]).Microseconds())/1000, w.name+"-ms")
	}
	b.ReportMetric(0, "ns/op") // all ways in a row mean nothing
}

// stages are the parts of the sandbox, each with all before it, and the path through init.
func stages(b *testing.B) []way {
	b.Helper()
	o := call.Order{Profile: policy.Profile{Mode: policy.WorkspaceWrite}, Tool: "bash", Arguments: `{"command":"exec /bin/true"}`, Workspace: b.TempDir()}
	parts, err := call.Stages(o)
	if err != nil {
		b.Fatal(err)
	}
	var ways []way
	for _, s := range parts {
		ways = append(ways, way{"stage-" + s.Name, timed(s.Run)})
	}
	inits := call.NewPool(call.Waiter{})
	b.Cleanup(inits.Empty)
	return append(ways, way{"stage-init", timed(func() error { return call.One(inits, o) })})
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
	toolbox, err := runnertest.Build(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	return toolbox
}

func throughSupervisor(b *testing.B, p *runnertest.Pod, prof policy.Profile) func() error {
	b.Helper()
	a, err := runnertest.NewAgent(p.Ctl(wire.ContainerFor(prof)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(a.Close)
	p.Start(b, wire.ContainerFor(prof), runnertest.Options{})
	l, err := a.Accept(wire.Epoch{Boot: 1}, prof, 20*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	st, err := l.Order(prof, wire.Workspace, "bash", `{"command":"exec /bin/true"}`)
	if err != nil {
		b.Fatal(err)
	}
	return func() error {
		if err := l.Start(st); err != nil { // the same again: what the agent does before is no part of it
			return err
		}
		r, err := l.Wait(st.Call)
		if err == nil && (r.Cause != wire.Finished || r.Status != 0) {
			err = fmt.Errorf("%+v", r)
		}
		l.Forget()
		return err
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
