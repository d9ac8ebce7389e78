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

// stages are the parts of a confined call: what each adds to the one before.
var stages = []struct{ what, name, before string }{
	{"a container like that of the tools, for any program", "plain-in-container", "plain"},
	{"fork without an exec of its own, over Go's", "stage-fork", "plain"},
	{"limits and no_new_privs", "stage-limits", "stage-fork"},
	{"the Landlock domain", "stage-landlock", "stage-limits"},
	{"the seccomp filter", "stage-seccomp", "stage-landlock"},
	{"trying what must fail", "stage-selftest", "stage-seccomp"},
	{"order to and report from the process that watches", "stage-init", "stage-selftest"},
}

// call measures what a confined call costs over plain fork and exec in the same container, by the
// toolbox's own benchmark: a supervisor in namespaces of this machine, as root, every way in turn.
func (b *bench) call(ctx context.Context) error {
	ms, err := medians(ctx)
	if err != nil {
		return err
	}
	plain := ms["plain-in-container"]
	for _, s := range stages {
		b.add("confined_call_stage_ms", ms[s.name]-ms[s.before], "ms", s.what, ms[s.before])
	}
	outer := ms[policy.WorkspaceWrite.String()] - plain - (ms["stage-init"] - ms["plain"])
	b.add("confined_call_stage_ms", outer, "ms", "frames between agent and supervisor, and its part", plain)
	for _, mode := range policy.Modes() {
		over := ms[mode.String()] - plain
		b.add("confined_call_overhead_ms", over, "ms", "plain fork and exec in the same container ("+mode.String()+")", plain)
		if wrapped, ok := ms["bubblewrap"]; ok {
			b.add("confined_call_overhead_ms", over, "ms", "bubblewrap's own overhead ("+mode.String()+")", wrapped-ms["plain"])
		}
	}
	return nil
}

// medians runs the benchmark and returns what it reports, by the name of the way.
func medians(ctx context.Context) (map[string]float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "./internal/runner/call", "-run", "^$", "-bench", "^BenchmarkCall$", "-benchtime", "500x").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	ms := map[string]float64{}
	for _, m := range metric.FindAllStringSubmatch(string(out), -1) {
		if ms[m[2]], err = strconv.ParseFloat(m[1], 64); err != nil {
			return nil, err
		}
	}
	wanted := []string{"plain"}
	for _, s := range stages {
		wanted = append(wanted, s.name)
	}
	for _, mode := range policy.Modes() {
		wanted = append(wanted, mode.String())
	}
	for _, name := range wanted {
		if ms[name] == 0 {
			return nil, fmt.Errorf("the benchmark does not report %s: %s", name, out)
		}
	}
	return ms, nil
}
