// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Why a turn's context ended. Without one of these the agent itself is ending, and the
// turn is left open for the next boot.
var (
	errStopped   = errors.New("the session was stopped")
	errCancelled = errors.New("the turn was cancelled")
	// errSuspended leaves the turn open, too.
	errSuspended = errors.New("the session is being suspended")
)

// turns answers one message after the other.
func (a *Agent) turns() {
	for {
		ctx, err := a.openTurn()
		if err != nil {
			return
		}
		err = a.tracedTurn(ctx)
		a.stopTurn(nil)
		if err != nil {
			return
		}
	}
}

// openTurn waits for a message and opens its turn, or takes up the one that an earlier boot
// left open. The error ends the loop.
func (a *Agent) openTurn() (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.awaitLocked(a.root, func() bool {
		return a.stopping || a.suspending || a.f.ended || a.readyLocked() && (a.f.turn.open || a.f.next() >= 0)
	})
	if err != nil {
		return nil, err
	}
	if a.stopping || a.f.ended {
		return nil, a.endLocked()
	}
	if a.suspending {
		a.settled = true
		a.publishLocked()
		return nil, errSuspended
	}
	ctx, cancel := context.WithCancelCause(a.root)
	a.stopTurn = cancel
	if !a.f.turn.open {
		if err := a.recordLocked(a.f.planTurn(a.f.next())...); err != nil {
			return nil, err
		}
	}
	a.publishLocked()
	return ctx, nil
}

// endLocked writes the session's last event. The agent stays to be observed.
func (a *Agent) endLocked() error {
	if a.f.ended {
		a.settled = true
		a.publishLocked()
		return errStopped
	}
	a.closed = true
	a.endTerminalsLocked(terminalStopped)
	var entries []entry
	if a.f.turn.open {
		entries = a.f.planTurnEnd(endStopped.reason, endStopped.text)
	}
	if err := a.recordLocked(append(entries, entry{eventlog.TypeSessionEnd, eventlog.SessionEnd{Reason: ReasonStopped}})...); err != nil {
		return err
	}
	a.settled = true
	a.publishLocked()
	return errStopped
}

// runTurn takes steps until the turn has an end. Where it stands is read from the fold alone, so
// a turn that an earlier boot began goes on in the same way. The error is that the
// log cannot be written, or that the agent is ending.
func (a *Agent) runTurn(ctx context.Context) error {
	for {
		if end := a.turnEnds(ctx); end != nil {
			return a.endTurn(*end)
		}
		if errors.Is(context.Cause(ctx), errSuspended) {
			return nil
		}
		err := a.runStep(ctx)
		if fatal := a.fatalError(); fatal != nil {
			return fatal
		}
		if err != nil && ctx.Err() == nil && a.root.Err() == nil {
			return a.endTurn(end{ReasonModelFailed, a.modelFailed(err)})
		}
		if err := a.root.Err(); err != nil && a.turnEnds(ctx) == nil {
			return err
		}
	}
}

// turnEnds says how the turn ends before its next step, or nil.
func (a *Agent) turnEnds(ctx context.Context) *end {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.f.finished(); e != nil {
		return e
	}
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		return &endStopped
	case a.f.turn.cancelled:
		return &endCancelled
	case len(a.f.openCalls()) > 0: // what is next is no request
		return nil
	}
	return a.f.limitMet(a.config.Limits)
}

func (a *Agent) endTurn(e end) error {
	return a.record(func(f *fold) []entry { return f.planTurnEnd(e.reason, e.text) })
}

// runStep makes one request and runs the calls of its answer, or those that an earlier boot left
// open.
func (a *Agent) runStep(ctx context.Context) error {
	a.mu.Lock()
	open := a.f.openCalls()
	a.mu.Unlock()
	if len(open) > 0 {
		return a.finishStep(ctx, decodeCalls(open))
	}
	answer, err := a.request(ctx)
	if err != nil {
		return err
	}
	return a.useAnswer(ctx, answer)
}

func (a *Agent) fatalError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fatal
}

// useAnswer logs an answer and runs its calls. The error is that the log cannot be written.
func (a *Agent) useAnswer(ctx context.Context, answer model.Answer) error {
	a.mu.Lock()
	a.keyMissing = false
	err := a.recordLocked(a.f.planAnswer(answer)...)
	calls := slices.Clone(a.f.turn.calls)
	a.publishLocked()
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if answer.Finish == model.FinishLength {
		if err := a.refuseCut(calls); err != nil {
			return err
		}
		return a.endStep()
	}
	return a.finishStep(ctx, decodeCalls(calls))
}

// finishStep runs calls and ends their step.
func (a *Agent) finishStep(ctx context.Context, calls []work) error {
	a.mu.Lock()
	err := a.f.refuseOthers(calls)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if err := a.runCalls(ctx, calls); err != nil {
		return err
	}
	return a.endStep()
}

func (a *Agent) endStep() error {
	return a.record(func(f *fold) []entry { return []entry{f.planStepEnd()} })
}

func (a *Agent) refuseCut(calls []*call) error {
	for _, c := range calls {
		if err := a.answerCall(c.id, eventlog.OutcomeNotStarted, textCut); err != nil {
			return err
		}
	}
	return nil
}

// modelFailed finds the words for a request without an answer.
func (a *Agent) modelFailed(err error) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := eventlog.Redact(err.Error(), a.secrets.texts())
	failure, typed := errors.AsType[*model.Error](err)
	a.keyMissing = typed && (failure.Kind == model.KeyMissing || failure.Kind == model.Auth && a.keyFileAbsent())
	if a.keyMissing && failure.Kind == model.Auth {
		text = fmt.Sprintf("The model endpoint wants a key and none is given: name a Secret with the key %s in the class's model. (%s)", wire.ModelKeyFile, text)
	}
	reason := ""
	if typed {
		reason = failure.Reason()
	}
	a.o.Log.Error("The model gave no answer", "reason", reason, "error", text)
	return text
}
