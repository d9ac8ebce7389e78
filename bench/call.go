// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
)

// A line of go test -bench: name, CPUs, iterations, nanoseconds.
var benchLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// call measures what a confined call costs over plain fork and exec, by the toolbox's own
// benchmarks: a supervisor in namespaces of this machine, as root.
func (b *bench) call(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "test", "./internal/runner/runnertest", "-run", "^$", "-bench", ".", "-benchtime", "100x", "-count", "5").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	took := map[string][]float64{}
	for _, m := range benchLine.FindAllStringSubmatch(string(out), -1) {
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		took[m[1]] = append(took[m[1]], ns/1e6)
	}
	plain, err := median(took, "PlainExec")
	if err != nil {
		return err
	}
	for _, mode := range []string{"read-only", "workspace-write"} {
		confined, err := median(took, "ConfinedCall/"+mode)
		if err != nil {
			return err
		}
		b.add("confined_call_overhead_ms", confined-plain, "ms", "plain fork and exec ("+mode+")", plain)
	}
	return nil
}

// median of the runs of one benchmark, in milliseconds.
func median(took map[string][]float64, name string) (float64, error) {
	runs := slices.Sorted(slices.Values(took[name]))
	if len(runs) == 0 {
		return 0, fmt.Errorf("there is no benchmark %s", name)
	}
	return runs[len(runs)/2], nil
}
