// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/agentsession-dev/operator/internal/policy"
)

// A metric in a line of go test -bench: its value and its name, which ends in -ms.
var metric = regexp.MustCompile(`([\d.]+) (\S+)-ms\b`)

// call measures what a confined call costs over plain fork and exec, by the toolbox's own
// benchmark: a supervisor in namespaces of this machine, as root, every way in turn.
func (b *bench) call(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "test", "./internal/runner/runnertest", "-run", "^$", "-bench", "^BenchmarkCall$", "-benchtime", "500x").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	ms := map[string]float64{}
	for _, m := range metric.FindAllStringSubmatch(string(out), -1) {
		if ms[m[2]], err = strconv.ParseFloat(m[1], 64); err != nil {
			return err
		}
	}
	plain, ok := ms["plain"]
	if !ok {
		return fmt.Errorf("the benchmark reports no plain call: %s", out)
	}
	for _, mode := range policy.Modes() {
		over, ok := ms[mode.String()+"-over-plain"]
		if !ok {
			return fmt.Errorf("the benchmark reports no call in %s: %s", mode, out)
		}
		b.add("confined_call_overhead_ms", over, "ms", "plain fork and exec ("+mode.String()+")", plain)
		if wrapped, ok := ms["bubblewrap-over-plain"]; ok {
			b.add("confined_call_overhead_ms", over, "ms", "bubblewrap's own overhead ("+mode.String()+")", wrapped)
		}
	}
	return nil
}
