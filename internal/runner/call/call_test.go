// SPDX-License-Identifier: Apache-2.0

package call

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
)

func init() { runtime.LockOSThread() }

// The test binary is its own init: the path of a call leads through the program that takes it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		os.Exit(Init())
	}
	if len(os.Args) > 1 && os.Args[1] == "tool" {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// BenchmarkInit is the part of a call that is not the supervisor's, beside plain fork and
// exec of the same program with the same environment, in turn.
func BenchmarkInit(b *testing.B) {
	p := NewPool(Waiter{})
	defer p.Empty()
	dir := b.TempDir()
	o := Order{Profile: policy.Profile{Mode: policy.WorkspaceWrite}, Tool: "bash", Arguments: `{"command":"exec /bin/true"}`, Workspace: dir}
	var confined, plain []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := one(p, o); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		c := exec.Command("/bin/bash", "-c", "exec /bin/true")
		c.Env, c.Dir = Environment(dir), dir
		if err := c.Run(); err != nil {
			b.Fatal(err)
		}
		confined, plain = append(confined, between.Sub(start)), append(plain, time.Since(between))
	}
	slices.Sort(confined)
	slices.Sort(plain)
	b.ReportMetric(float64(confined[len(confined)/2].Microseconds())/1000, "confined-ms")
	b.ReportMetric(float64(plain[len(plain)/2].Microseconds())/1000, "plain-ms")
}

func one(p *Pool, o Order) error {
	c, err := p.Launch(o)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Begin(); err != nil {
		return err
	}
	_, err = c.Wait()
	return err
}
