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

// tells sends a message whose turn makes one call, and looks at what the model was told.
func (p *pod) tells(message string, want ...string) eventlog.ToolResult {
	p.t.Helper()
	p.say(message)
	results := p.results()
	last := results[len(results)-1]
	for _, w := range want {
		if !strings.Contains(last.Text, w) {
			p.t.Errorf("%q gave %q, want %q", message, last.Text, w)
		}
	}
	return last
}

// A terminal of the real agent and the real toolbox: it stays between turns, its writers end with
// the mode, which the next action is told, and it can be opened again under what holds then.
func TestATerminalStaysUntilTheModeChanges(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	p.tells("open a terminal", "(the terminal main is open)")
	p.tells("type a command", "sum=42\n", "(the terminal main is open)")
	if b, err := os.ReadFile(p.workspace("typed")); string(b) != "sum=42\n" {
		t.Errorf("the command wrote %q, %v", b, err)
	}
	p.tells("type a writer", "(the terminal main is open)")
	p.grows("growth", 0)
	p.switchTo(policy.ReadOnly)
	size := p.size("growth")
	p.tells("type a command", "The terminal main is gone: the sandbox was narrowed")
	if now := p.size("growth"); now != size {
		t.Errorf("what ran in the terminal wrote on: %d, then %d bytes", size, now)
	}
	p.tells("read the terminal", "There is no terminal main")
	p.tells("open a terminal", "(the terminal main is open)")
	p.tells("type a command", "Read-only file system", "sum=42")
	p.switchTo(policy.WorkspaceWrite)
	p.tells("type a command", "The terminal main is gone: the sandbox was widened")
	p.tells("open a terminal", "(the terminal main is open)")
	p.tells("type a command", "sum=42")
}

// kill -9 of the agent while a terminal is open: nothing of it lives, and the model is told.
func TestTheAgentIsKilledWithAnOpenTerminal(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	p.tells("open a terminal", "(the terminal main is open)")
	p.tells("type a writer", "(the terminal main is open)")
	p.grows("growth", 0)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.startAgent()
	p.await("the policy is applied again", func(o wire.Observed) bool { return o.Applied != nil })
	size := p.size("growth")
	r := p.tells("read the terminal", "The terminal main is gone: the agent was restarted")
	if !r.IsError || r.Terminal == nil || r.Terminal.Open {
		t.Errorf("the result is %+v", r)
	}
	if now := p.size("growth"); now != size {
		t.Errorf("what ran in the terminal wrote on: %d, then %d bytes", size, now)
	}
	p.tells("open a terminal", "(the terminal main is open)")
}
