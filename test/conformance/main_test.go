// SPDX-License-Identifier: Apache-2.0

// Package conformance starts the real supervisor in containers like those of the pod,
// on the real kernel, and holds it to what the modes promise. It needs root.
package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentsession-dev/operator/internal/leaktest"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
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

// save writes a report of a place where CONFORMANCE_REPORTS says.
func save(t *testing.T, place string, w conformance.Where, findings []conformance.Finding) {
	t.Helper()
	dir := os.Getenv("CONFORMANCE_REPORTS")
	if dir == "" {
		return
	}
	w.Kernel, w.User, w.NoNewPrivs = conformance.Where{}.Here().Kernel, runnertest.ToolsUser, true
	w.Container = wire.ToolsRO + " and " + wire.ToolsRW
	r := conformance.Report{Where: w, Findings: findings}
	if err := conformance.Save(r, filepath.Join(dir, place+".yaml"), filepath.Join(dir, place+".xml")); err != nil {
		t.Error(err)
	}
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
	return leaktest.Run(m)
}
