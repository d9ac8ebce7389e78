// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/wire"
)

// end is how a turn ends: a word for programs and a sentence for people.
type end struct{ reason, text string }

var (
	endStopped   = end{ReasonStopped, "The session was stopped in the middle of the turn."}
	endCancelled = end{ReasonCancelled, "The turn was cancelled by a newer message."}
)

// errTurnOver is why a call no longer waits for a person when its turn ends otherwise.
var errTurnOver = errors.New("the turn was ended")

// finished says how the model ended the open turn; nil while it goes on.
func (f *fold) finished() *end {
	t := &f.turn
	switch {
	case !t.answered || t.called:
		return nil
	case t.finish == string(model.FinishLength):
		return &end{ReasonOutputLimit, "The answer was cut at the model's output limit: " + t.answer}
	}
	return &end{ReasonCompleted, ""}
}

// MaxSteps is how many steps one turn may take where no other limit is set.
const MaxSteps = 100

// limitMet says which limit keeps the open turn from making another request; nil when none does.
func (f *fold) limitMet(l wire.SessionLimits) *end {
	maxSteps := cmp.Or(l.MaxStepsPerTurn, MaxSteps)
	tokens := f.usage.Input + f.usage.CachedInput + f.usage.Output
	switch {
	case l.MaxTurns > 0 && f.turn.step == 0 && int64(f.taken) >= l.MaxTurns:
		return &end{ReasonTurnLimit, fmt.Sprintf("The session may take %d turns, and all of them are taken. Raise limits.maxTurns to go on.", l.MaxTurns)}
	case l.MaxTotalTokens > 0 && tokens >= l.MaxTotalTokens:
		return &end{ReasonTokenLimit, fmt.Sprintf("The session may use %d tokens and has used %d. Raise limits.maxTotalTokens to go on.", l.MaxTotalTokens, tokens)}
	case int64(f.turn.step) >= maxSteps && !f.turn.stepOpen:
		return &end{ReasonStepLimit, fmt.Sprintf("The turn was ended after %d steps. Send another message to go on.", maxSteps)}
	}
	return nil
}

// stopText says, for the result of a call, why it was stopped or not begun.
func stopText(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopped), errors.Is(cause, errCancelled), errors.Is(cause, errSuspended):
		return cause.Error()
	case cause != nil:
		return "the agent is being restarted"
	}
	return "the turn was stopped"
}
