// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/telemetry"
	"github.com/agentsession-dev/operator/internal/policy"
)

// How a call failed, for traces.
const (
	failureDenied = "denied"
	failureResult = "tool_error" // the tool says so
)

// tracedTurn runs the open turn within its span.
func (a *Agent) tracedTurn(ctx context.Context) error {
	ctx, end := a.trace.Turn(ctx, a.turnNumber())
	err := a.runTurn(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	var reason string // none where this boot leaves the turn to the next
	if !a.f.turn.open {
		reason = a.f.messages[a.f.turn.message].reason
	}
	end(reason)
	return err
}

func (a *Agent) turnNumber() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.f.turn.number
}

// tracedAsk sends a request within its span.
func (a *Agent) tracedAsk(ctx context.Context, out outgoing) (model.Answer, error) {
	ctx, end := a.trace.Request(ctx, out.header.Provider, out.header.Model)
	answer, err := a.ask(ctx, out)
	var failure string
	if err != nil {
		failure = "ModelFailed"
		if typed, ok := errors.AsType[*model.Error](err); ok {
			failure = typed.Reason()
		}
	}
	u := answer.Usage
	end(string(answer.Finish), telemetry.Usage{Input: u.Input, CachedInput: u.CachedInput, Output: u.Output}, failure)
	return answer, err
}

// tracedCall runs a call within its span. What became of it stands in the log.
func (a *Agent) tracedCall(ctx context.Context, w work) error {
	ctx, end := a.trace.Tool(ctx, w.name, w.id)
	err := a.runCall(ctx, w)
	a.mu.Lock()
	defer a.mu.Unlock()
	var mode, failure string
	if i := slices.IndexFunc(a.f.turn.calls, func(c *call) bool { return c.id == w.id }); i >= 0 {
		mode, failure = a.f.turn.calls[i].mode, a.f.turn.calls[i].failure
	}
	end(mode, failure)
	return err
}

// endedAs says under which mode a call ran, if it did, and how it failed, if it did.
func endedAs(r eventlog.ToolResult) (mode, failure string) {
	var p policy.Profile
	if len(r.Profile) > 0 && json.Unmarshal(r.Profile, &p) == nil {
		mode = p.Mode.String()
	}
	switch {
	case len(r.Denial) > 0:
		failure = failureDenied
	case r.Outcome != "":
		failure = r.Outcome
	case r.IsError:
		failure = failureResult
	}
	return mode, failure
}
