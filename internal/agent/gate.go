// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	keepOutput = 32 << 10 // bytes of a command's output that the model reads
	keepFile   = 256 << 10
	// stopPatience is how long a supervisor may take to end a call, beyond the call's own time.
	stopPatience = 10 * time.Second
	// fileTimeout bounds the tools that are no commands.
	fileTimeout = 60 * time.Second
)

// passed is a call that has passed the gate.
type passed struct {
	id      string
	call    *toolsocket.Call
	profile policy.Profile // what it runs under
	told    policy.Profile // what the request that asked for it was told
	policy  policy.Policy  // that stood when it started, and then when it ended
	grant   string         // the request whose grant it runs under; empty for most
	by      string         // who granted it
	offers  []policy.Mode  // that it could be let run under, had it been denied
	bound   time.Duration  // it takes no longer
	file    string         // whose version it may tell
	output  *output        // all that it writes, where that is more than is kept of it
	whole   bool           // that can be read back
	stop    string         // why it was stopped, if it was
	unheard bool           // it ended while the agent paused because nobody heard the operator
}

// pass lets a call start: its start is in the log, and only then the supervisor hears of it.
// Both happen under the lock that a change of policy needs, so a call is either
// logged before the change, and ended by it, or starts under the new policy.
func (a *Agent) pass(ctx context.Context, id string, c tool.Call) (*passed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.awaitGateLocked(ctx)
	if err == nil && c.Wants != nil && a.livingLocked() > 0 {
		a.endTerminalsLocked(terminalGranted)
		err = a.awaitGateLocked(ctx) // which may have been shut meanwhile
	}
	if err != nil {
		return nil, err
	}
	profile, start, err := a.planStartLocked(id, c)
	if err != nil {
		return nil, err
	}
	p := &passed{id: id, profile: profile, told: a.f.toldProfile(), policy: a.f.policy.doc.Policy, bound: fileTimeout, output: a.outputs.of(id)}
	p.file = tool.FileOf(a.config.Workspace, c.Arguments)
	keep := keepFile
	if b, ok := c.Arguments.(*tool.Bash); ok {
		p.bound, keep = b.Timeout(), keepOutput
	}
	if c.Wants != nil {
		p.grant, p.by = a.f.asked.ID, a.f.asked.by
	}
	if err := a.recordLocked(start...); err != nil {
		return nil, err
	}
	clip := toolsocket.NewClip(keep)
	clip.Whole = p.output
	p.call, err = a.tools.Start(wire.ContainerFor(profile), wire.Start{
		Call: id, Epoch: a.epoch, Profile: profile, Tool: c.Tool.Name, Arguments: string(c.Canonical), Digest: c.Digest,
		Workspace: a.config.Workspace, Limits: wire.Limits{TimeoutMillis: p.bound.Milliseconds()}, Version: a.f.version(c, p.file),
		Granted: p.grant != "",
	}, clip)
	if err != nil {
		return nil, err
	}
	if p.grant != "" {
		a.granted = p
	}
	a.running++
	a.publishLocked()
	return p, nil
}

// awaitGateLocked waits until the gate lets a call pass.
func (a *Agent) awaitGateLocked(ctx context.Context) error {
	err := a.awaitLocked(ctx, func() bool { return a.openLocked() && (a.running == 0 || !a.aloneLocked()) })
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// planStartLocked says what is logged before a call starts. A call that asked for more starts with
// its grant or not at all: the policy may have changed since it was given.
func (a *Agent) planStartLocked(id string, c tool.Call) (policy.Profile, []entry, error) {
	if c.Wants == nil {
		profile, start := a.f.planStart(id, a.epoch)
		return profile, []entry{start}, nil
	}
	digest, err := c.RequestDigest(a.config.Workspace, c.Wants.Mode, a.o.SessionUID, id)
	if err != nil {
		return policy.Profile{}, nil, err
	}
	profile, granted := a.f.grantFor(id, digest, a.o.Now())
	if !granted {
		return profile, nil, errNotGranted
	}
	return profile, a.f.planGranted(id, profile, a.epoch), nil
}

// openLocked reports whether the gate lets anything pass.
func (a *Agent) openLocked() bool { return !a.closed && a.readyLocked() && !a.leaseOverLocked() }

// wait returns how a call ended. When ctx ends it stops the call; a supervisor that does not
// end it in time loses its connection, and with it everything that it runs.
func (a *Agent) wait(ctx context.Context, p *passed) (wire.Exited, toolsocket.Output, error) {
	whole, cancel := context.WithTimeout(context.Background(), p.bound+stopPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		p.call.Stop()
		time.AfterFunc(stopPatience, cancel)
	})
	defer stop()
	exited, out, err := p.call.Wait(whole)
	if err != nil && !errors.Is(err, toolsocket.ErrLost) {
		a.o.Log.Error("A supervisor does not end a call; dropping it", "call", p.id)
		p.call.Abandon()
		exited, out, err = p.call.Wait(context.Background())
	}
	return exited, out, err
}

// finish logs the result of a call that had passed the gate. What it says of asking for more
// holds when it is logged.
func (a *Agent) finish(w work, p *passed, result func() eventlog.ToolResult) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.policy, p.offers = a.standingLocked(), a.offersLocked(w, p)
	err := a.recordLocked(entry{eventlog.TypeToolResult, result()})
	if a.granted == p {
		a.granted = nil
	}
	a.running--
	a.publishLocked()
	return err
}
