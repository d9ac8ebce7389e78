// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// Rows of the agent's own test: an id that ends in _mib, and a number.
var memoryRow = regexp.MustCompile(`(agent_\w+_mib) ([\d.]+)`)

// memoryAims are the most that an agent should have resident, in MiB.
var memoryAims = map[string]float64{"agent_idle_mib": 20, "agent_10000_events_mib": 64}

// memory is what the process of an agent has resident (VmRSS), idle and in a session of 10,000 events: by
// the agent's own test, in a pod of namespaces on this machine, as root.
func (b *bench) memory(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "./cmd/agent", "-run", "^TestMemory$", "-v", "-count=1", "-timeout", "20m")
	cmd.Env = append(os.Environ(), "MEMORY_EVENTS=10000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	rows := memoryRow.FindAllStringSubmatch(string(out), -1)
	if len(rows) != len(memoryAims) {
		return fmt.Errorf("the test reports %d figures, want %d: %s", len(rows), len(memoryAims), out)
	}
	for _, m := range rows {
		mib, err := strconv.ParseFloat(m[2], 64)
		aim, known := memoryAims[m[1]]
		if err != nil || !known {
			return fmt.Errorf("the test reports %s", m[0])
		}
		b.add(m[1], mib, "MiB", "the most that it should be", aim)
	}
	return nil
}
