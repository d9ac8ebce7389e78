// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func (p *pod) apply(pol policy.Policy) wire.Observed {
	p.t.Helper()
	p.desired.Policy = string(policy.Encode(pol).Bytes)
	p.desired.Stamp.SessionGeneration++
	return p.await("the policy is applied", func(o wire.Observed) bool { return o.Applied != nil && o.Applied.Stamp == p.desired.Stamp })
}

func (p *pod) pending() wire.Approval {
	p.t.Helper()
	return p.await("a call waits for a person", func(o wire.Observed) bool { return len(o.Approvals) > 0 }).Approvals[0]
}

func (p *pod) allow(a wire.Approval) {
	p.desired.Decisions = []wire.Decision{{CallID: a.CallID, Digest: a.Digest, Decision: wire.Approved, By: "alice"}}
	p.put()
}

// The kernel denies, the model asks, a person lets the call run: it writes once, and what it left
// running is gone with it. The next ordinary call is denied again.
func TestAGrantIsTrueInTheKernel(t *testing.T) {
	p := newPod(t)
	asks := policy.Policy{Approval: policy.ApprovalAsk, Ceiling: policy.Unbounded}
	p.apply(asks)
	m := p.send("write with a grant")
	a := p.pending()
	if p.size("granted") != 0 {
		t.Fatal("it was written before anybody said so")
	}
	if err := p.cmd.Process.Kill(); err != nil { // the request outlives the agent
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.startAgent()
	if again := p.pending(); again != a {
		t.Errorf("%+v waits after a kill, want %+v", again, a)
	}
	p.allow(a)
	p.answered(m)
	if got, err := os.ReadFile(p.workspace("granted")); err != nil || string(got) != "x\n" {
		t.Errorf("the call wrote %q (%v), want one line", got, err)
	}

	m = p.send("write on with a grant")
	p.allow(p.pending())
	p.grows("growth", 0)
	asks.Ceiling.Mode = policy.ReadOnly
	o := p.apply(asks)
	size := p.size("growth")
	if o.Applied.Killed == 0 {
		t.Error("a ceiling below the grant ended no process")
	}
	p.answered(m)
	p.say("write with bash")
	if now := p.size("growth"); now != size || p.size("hello.txt") != 0 {
		t.Errorf("after the end of the grant the file grew from %d to %d bytes, and an ordinary call wrote %d", size, now, p.size("hello.txt"))
	}

	asks.Ceiling.Mode = policy.DangerFullAccess
	p.apply(asks)
	m = p.send("write on with a grant")
	p.allow(p.pending())
	p.grows("growth", size)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.startAgent()
	p.answered(m)
	results := p.results()
	if last := results[len(results)-1]; last.Outcome != eventlog.OutcomeUnknown {
		t.Errorf("the result of a granted call that a kill ended is %+v", last)
	}
	used := 0
	for _, e := range p.events() {
		if e.Type == eventlog.TypeGrantUsed {
			used++
		}
	}
	if used != 3 {
		t.Errorf("%d grants were used, want 3", used)
	}
	if first := results[1].Text; !strings.Contains(first, "This call ran once under sandbox mode workspace-write") {
		t.Errorf("the first granted call says %q", first)
	}
}
