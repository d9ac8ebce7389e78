// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/wire"
)

var errStopped = errors.New("the session was stopped")

// turns answers one message after the other.
func (a *Agent) turns() {
	for {
		ctx, err := a.openTurn()
		if err != nil {
			return
		}
		err = a.runTurn(ctx)
		a.stopTurn(nil)
		if err != nil {
			return
		}
	}
}

// openTurn waits for a message and opens its turn. The error ends the loop.
func (a *Agent) openTurn() (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.awaitLocked(a.root, func() bool {
		return a.stopping || a.f.ended || a.readyLocked() && a.f.next() >= 0
	})
	if err != nil {
		return nil, err
	}
	if a.stopping || a.f.ended {
		return nil, a.endLocked()
	}
	ctx, cancel := context.WithCancelCause(a.root)
	a.stopTurn = cancel
	if err := a.recordLocked(a.f.planTurn(a.f.next())...); err != nil {
		return nil, err
	}
	a.publishLocked()
	return ctx, nil
}

// endLocked writes the session's last event. The agent stays to be observed.
func (a *Agent) endLocked() error {
	if !a.f.ended {
		if err := a.recordLocked(entry{eventlog.TypeSessionEnd, eventlog.SessionEnd{Reason: ReasonStopped}}); err != nil {
			return err
		}
		a.publishLocked()
	}
	return errStopped
}

// runTurn takes steps until the model stops. The error is that the log cannot be written.
func (a *Agent) runTurn(ctx context.Context) error {
	for step := 1; step <= MaxSteps; step++ {
		again, reason, text, err := a.runStep(ctx, step)
		if err != nil {
			return err
		}
		if !again {
			return a.endTurn(reason, text)
		}
	}
	return a.endTurn(ReasonStepLimit, fmt.Sprintf("The turn was ended after %d steps. Send another message to go on.", MaxSteps))
}

func (a *Agent) endTurn(reason, text string) error {
	return a.record(func(f *fold) []entry { return f.planTurnEnd(reason, text) })
}

// runStep makes one request and runs the calls of its answer.
func (a *Agent) runStep(ctx context.Context, step int) (again bool, reason, text string, err error) {
	prepared, provider, err := a.sendable(ctx, step)
	if err == nil {
		var answer model.Answer
		if answer, err = a.ask(ctx, provider, prepared); err == nil {
			return a.useAnswer(ctx, answer)
		}
	}
	if fatal := a.fatalError(); fatal != nil {
		return false, "", "", fatal
	}
	if ctx.Err() != nil {
		reason, text = interruption(ctx)
		return false, reason, text, nil
	}
	return false, ReasonModelFailed, a.modelFailed(err), nil
}

func (a *Agent) fatalError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fatal
}

func interruption(ctx context.Context) (reason, text string) {
	if errors.Is(context.Cause(ctx), errStopped) {
		return ReasonStopped, "The session was stopped in the middle of the turn."
	}
	return ReasonInterrupted, textRestart
}

// sendable opens a step and prepares its request. What it will carry, the policy that it states
// included, is fixed and in the log when it returns.
func (a *Agent) sendable(ctx context.Context, step int) (model.Prepared, model.Provider, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A request that left while a narrowing is under way would state what no longer holds.
	if err := a.awaitLocked(ctx, a.openLocked); err != nil {
		return model.Prepared{}, nil, err
	}
	entries := []entry{{eventlog.TypeStepStart, eventlog.StepStart{Turn: a.f.turn.number, Step: step}}}
	if !a.headerDone {
		entries = append(entries, a.f.planHeader(*a.config)...)
	}
	if err := a.recordLocked(entries...); err != nil {
		return model.Prepared{}, nil, err
	}
	a.headerDone = true
	provider, err := a.providerLocked()
	if err != nil {
		return model.Prepared{}, nil, err
	}
	request, snapshot, err := a.f.request()
	if err != nil {
		return model.Prepared{}, nil, err
	}
	prepared, err := provider.Prepare(request)
	if err != nil {
		return model.Prepared{}, nil, err
	}
	if err := a.recordLocked(a.f.planRequest(prepared, snapshot)); err != nil {
		return model.Prepared{}, nil, err
	}
	a.publishLocked()
	return prepared, provider, nil
}

// providerLocked follows the endpoint in the configuration, and a key that comes later; the
// model's name is the header's.
func (a *Agent) providerLocked() (model.Provider, error) {
	config := model.OpenAIConfig{BaseURL: a.config.Model.BaseURL, KeyFile: a.o.KeyFile}
	if a.keyFileAbsent() {
		config.KeyFile = ""
	}
	if a.provider != nil && a.endpoint == config {
		return a.provider, nil
	}
	p, err := model.NewOpenAIChat(config)
	if err != nil {
		return nil, err
	}
	a.provider, a.endpoint = p, config
	return p, nil
}

func (a *Agent) keyFileAbsent() bool {
	_, err := os.Stat(a.o.KeyFile)
	return errors.Is(err, os.ErrNotExist)
}

// ask sends a request and mirrors the answer as it comes.
func (a *Agent) ask(ctx context.Context, provider model.Provider, p model.Prepared) (model.Answer, error) {
	var answer *model.Answer
	var last error
	for d, err := range provider.Send(ctx, p) {
		if err != nil {
			last = err
			continue
		}
		if d.Answer != nil {
			answer = d.Answer
		}
		if d.Content != "" || d.Reasoning != "" {
			a.mirrorDelta(d)
		}
	}
	if answer == nil {
		if last == nil {
			last = errors.New("the model endpoint ended its answer without a word")
		}
		return model.Answer{}, last
	}
	return *answer, nil
}

func (a *Agent) mirrorDelta(d model.Delta) {
	type delta struct {
		Content   string `json:"content,omitempty"`
		Reasoning string `json:"reasoning,omitempty"`
	}
	line, err := json.Marshal(map[string]delta{"delta": {d.Content, d.Reasoning}})
	if err == nil {
		a.mirror.Line(line)
	}
}

// useAnswer logs an answer and runs its calls.
func (a *Agent) useAnswer(ctx context.Context, answer model.Answer) (again bool, reason, text string, err error) {
	a.mu.Lock()
	a.keyMissing = false
	err = a.recordLocked(a.f.planAnswer(answer)...)
	calls := slices.Clone(a.f.turn.calls)
	a.publishLocked()
	a.mu.Unlock()
	if err != nil {
		return false, "", "", err
	}
	if answer.Finish == model.FinishLength {
		err = a.refuseCut(calls)
	} else {
		err = a.runCalls(ctx, decodeCalls(calls))
	}
	if err == nil {
		err = a.record(func(f *fold) []entry { return []entry{f.planStepEnd()} })
	}
	switch {
	case err != nil:
		return false, "", "", err
	case ctx.Err() != nil:
		reason, text = interruption(ctx)
		return false, reason, text, nil
	case len(calls) > 0:
		return true, "", "", nil
	case answer.Finish == model.FinishLength:
		return false, ReasonOutputLimit, "The answer was cut at the model's output limit: " + answer.Content, nil
	}
	return false, ReasonCompleted, "", nil
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
	text := err.Error()
	failure, typed := errors.AsType[*model.Error](err)
	a.keyMissing = typed && (failure.Kind == model.KeyMissing || failure.Kind == model.Auth && a.keyFileAbsent())
	if a.keyMissing && failure.Kind == model.Auth {
		text = fmt.Sprintf("The model endpoint wants a key and none is given: name a Secret with the key %s in the class's model. (%s)", wire.ModelKeyFile, text)
	}
	a.o.Log.Error("The model gave no answer", "error", text)
	return text
}
