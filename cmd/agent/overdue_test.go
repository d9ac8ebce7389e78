// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A supervisor that hangs cannot end what runs: the narrowing is not confirmed and the
// container is called overdue, until its end has made it empty.
func TestAFrozenSupervisorIsOverdue(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	m := p.send("write for ever")
	p.grows("growth", 0)
	if err := p.tools[wire.ToolsRW].Freeze(); err != nil {
		t.Fatal(err)
	}
	p.desired.Policy = string(policy.Encode(policy.Policy{Mode: policy.ReadOnly, Ceiling: policy.Unbounded}).Bytes)
	p.desired.Stamp.SessionGeneration++
	o := p.await("it is overdue", func(o wire.Observed) bool { return len(o.Overdue) > 0 })
	if !slices.Equal(o.Overdue, []string{wire.ToolsRW}) || !slices.Equal(o.Unconfirmed, []string{wire.ToolsRW}) {
		t.Errorf("overdue %v, unconfirmed %v", o.Overdue, o.Unconfirmed)
	}
	if o.Applied.Stamp == p.desired.Stamp {
		t.Error("the narrowing counts as applied")
	}
	p.grows("growth", p.size("growth")) // so it must not
	p.tools[wire.ToolsRW].Kill()
	size := p.size("growth")
	p.tools[wire.ToolsRW] = p.pod.Start(t, wire.ToolsRW, runnertest.Options{})
	o = p.await("read-only is applied", func(o wire.Observed) bool { return o.Applied != nil && o.Applied.Stamp == p.desired.Stamp })
	if len(o.Overdue) > 0 || len(o.Unconfirmed) > 0 {
		t.Errorf("still overdue %v, unconfirmed %v", o.Overdue, o.Unconfirmed)
	}
	p.answered(m)
	if got := p.size("growth"); got != size {
		t.Errorf("the file grew from %d to %d after the container had ended", size, got)
	}
}
