// SPDX-License-Identifier: Apache-2.0

package call

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/agentsession-dev/operator/internal/leaktest"
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
	if len(os.Args) > 1 && os.Args[1] == "plain" {
		fmt.Fprintln(os.Stderr, ServePlain())
		os.Exit(1)
	}
	os.Exit(leaktest.Run(m))
}

// Inits take one call after the other, and end when they are let go: TestMain looks whether
// any is left.
func TestInitsAreLetGo(t *testing.T) {
	p := NewPool(Waiter{})
	dir := t.TempDir()
	for _, mode := range policy.Modes() {
		for range 2 {
			o := Order{Profile: policy.Profile{Mode: mode}, Tool: "bash", Arguments: `{"command":"sleep 1000 & true"}`, Workspace: dir}
			if err := One(p, o); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
		}
	}
	p.Empty()
}

// ServePlain is set by the benchmark.
var ServePlain func() error

// One runs a call to its end.
func One(p *Pool, o Order) error {
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
