// SPDX-License-Identifier: Apache-2.0

// Package conformance starts the real supervisor in containers like those of the pod,
// on the real kernel, and holds it to what the modes promise. It needs root.
package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
)

// toolbox is the binary as it is shipped.
var toolbox string

// scratch is where binaries are built.
var scratch string

// mutant is a binary with layers left out.
func mutant(t *testing.T, mutation string) string {
	t.Helper()
	path, err := runnertest.Build(scratch, mutation)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func runToolbox(args ...string) (string, error) {
	b, err := exec.Command(toolbox, args...).CombinedOutput()
	return string(b), err
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the conformance tests build containers: run them as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "toolbox")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		scratch = dir
		toolbox, err = runnertest.Build(dir, "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
