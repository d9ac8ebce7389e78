// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
	"github.com/agentsession-dev/operator/internal/agent/transcript"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// entry is an event that is to be logged. The functions here say which, and do nothing.
type entry struct {
	kind eventlog.Type
	data any
}

// The reasons of a turn's end.
const (
	ReasonCompleted   = "Completed"   // the model stopped by itself
	ReasonModelFailed = "ModelFailed" // the model endpoint gave no answer
	ReasonCancelled   = "Cancelled"   // a newer message cancelled it
	ReasonStopped     = "Stopped"     // the session was stopped
	ReasonStepLimit   = "StepLimit"   // it took more steps than a turn may take
	ReasonTurnLimit   = "TurnLimit"   // the session took more turns than it may take
	ReasonTokenLimit  = "TokenLimit"  // the session used more tokens than it may use
	ReasonOutputLimit = "OutputLimit" // the answer was cut at the model's output limit
)

// planPolicy says what a change of policy writes: the policy, and the snapshot if one is due.
func (f *fold) planPolicy(p pushed, workspace string, firstOfBoot bool, epoch uint64, killed int) []entry {
	cause := eventlog.CauseSpec
	switch {
	case firstOfBoot:
		cause = eventlog.CauseStart
	case p.stamp.SessionGeneration == f.policy.stamp.SessionGeneration && p.doc.Digest != f.policy.doc.Digest:
		cause = eventlog.CauseCeiling
	}
	entries := f.planWithdrawal(p.doc.Policy)
	seq := f.seq + uint64(len(entries)) + 1
	entries = append(entries, entry{eventlog.TypePolicyApplied, eventlog.PolicyApplied{
		Policy: string(p.doc.Bytes), Digest: string(p.doc.Digest), Stamp: mustJSON(p.stamp), Cause: cause,
		Epoch: epoch, Killed: killed,
	}})
	return append(entries, f.planSnapshot(p.doc.Policy, seq, workspace)...)
}

// planTurn opens the turn of a message.
func (f *fold) planTurn(i int) []entry {
	m, n := f.messages[i], int(f.turns)+1
	return []entry{
		{eventlog.TypeTurnStart, eventlog.TurnStart{Turn: n, MessageUID: m.uid}},
		{eventlog.TypeUserMessage, eventlog.UserMessage{
			Turn: n, MessageUID: m.uid, Author: m.author, Content: runtimecontext.UserText(m.author, m.content),
		}},
	}
}

// request is the next request of the open turn, as the model package wants it.
func (f *fold) request() (model.Request, uint64, error) {
	r := model.Request{Model: f.header.Model, System: f.header.System}
	if err := json.Unmarshal(f.header.Parameters, &r.Parameters); err != nil {
		return r, 0, fmt.Errorf("reading the logged parameters: %w", err)
	}
	if err := json.Unmarshal(f.header.Tools, &r.Tools); err != nil {
		return r, 0, fmt.Errorf("reading the logged tools: %w", err)
	}
	var snapshot uint64
	r.Messages, snapshot = f.history.Request()
	return r, snapshot, nil
}

// summaryRequest is the request for a summary of the transcript up to an event. All in front of the
// question are the bytes of the requests before it.
func (f *fold) summaryRequest(upTo uint64, ask string) (model.Request, uint64, error) {
	r, _, err := f.request()
	var snapshot uint64
	r.Messages, snapshot = f.history.Prefix(upTo)
	r.Messages = append(r.Messages, model.Message{Role: model.User, Content: ask})
	return r, snapshot, err
}

// planSummaryRequest says that a prepared request for a summary is about to leave.
func (f *fold) planSummaryRequest(p model.Prepared, snapshot, upTo uint64, attempt int) entry {
	return entry{eventlog.TypeRequestSent, eventlog.RequestSent{
		Turn: f.turn.number, Step: f.turn.step, Attempt: attempt, Digest: p.Digest(), Bytes: len(p.Body()),
		HeaderSeq: f.header.seq, PolicySeq: f.policy.seq, SnapshotSeq: snapshot, Ask: askSummary, UpTo: upTo,
	}}
}

// planRequest says that a prepared request is about to leave.
func (f *fold) planRequest(p model.Prepared, snapshot uint64) entry {
	return entry{eventlog.TypeRequestSent, eventlog.RequestSent{
		Turn: f.turn.number, Step: f.turn.step, Attempt: f.turn.attempt + 1, Digest: p.Digest(), Bytes: len(p.Body()),
		HeaderSeq: f.header.seq, PolicySeq: f.policy.seq, SnapshotSeq: snapshot,
	}}
}

// planAnswer writes an answer down and takes up its calls.
func (f *fold) planAnswer(a model.Answer) []entry {
	m := eventlog.AssistantMessage{
		Turn: f.turn.number, Step: f.turn.step, Content: a.Content, Reasoning: a.Reasoning,
		ReasoningState: a.ReasoningState, Finish: string(a.Finish),
		Usage: usageOf(a),
	}
	var calls []*call
	for i, c := range a.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, eventlog.ModelCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
		calls = append(calls, &call{id: transcript.CallID(f.turn.number, f.turn.step, i), name: c.Name, arguments: c.Arguments})
	}
	entries := []entry{{eventlog.TypeAssistantMessage, m}}
	for _, c := range calls {
		entries = append(entries, f.planCall(c))
	}
	return entries
}

func usageOf(a model.Answer) eventlog.Usage {
	return eventlog.Usage{Input: a.Usage.Input, CachedInput: a.Usage.CachedInput, Output: a.Usage.Output, Reasoning: a.Usage.Reasoning}
}

func (f *fold) planCall(c *call) entry {
	return entry{eventlog.TypeToolCall, eventlog.ToolCall{
		Turn: f.turn.number, Step: f.turn.step, CallID: c.id, Name: c.name, Arguments: c.arguments,
	}}
}

// planStart says under what a call of the open step runs now: the narrower, part by part,
// of the standing policy and of what the request that asked for it was told.
func (f *fold) planStart(id string, epoch wire.Epoch) (policy.Profile, entry) {
	profile := f.policy.doc.Policy.Profile().Meet(f.toldProfile())
	return profile, f.planStartUnder(id, epoch, profile)
}

// planStartUnder says that a call of the open step runs under a profile now.
func (f *fold) planStartUnder(id string, epoch wire.Epoch, profile policy.Profile) entry {
	return entry{eventlog.TypeToolStart, eventlog.ToolStart{
		CallID: id, PolicySeq: f.policy.seq, ToldSeq: f.told(), Epoch: epoch.Counter, Profile: mustJSON(profile),
	}}
}

// told is the seq of the policy that the model was told of when it asked for the calls of the
// open step. Where it is told none, that is the standing one.
func (f *fold) told() uint64 {
	if f.suppressed {
		return f.policy.seq
	}
	return f.turn.told
}

func (f *fold) toldProfile() policy.Profile { return f.policies[f.told()].Profile() }

func (f *fold) planStepEnd() entry {
	return entry{eventlog.TypeStepEnd, eventlog.StepEnd{Turn: f.turn.number, Step: f.turn.step}}
}

// planSnapshot states the policy to the model where that is due.
func (f *fold) planSnapshot(p policy.Policy, seq uint64, workspace string) []entry {
	contributions := f.words(p, workspace)
	if f.suppressed {
		contributions = nil
	}
	last := f.history.Last()
	s, due := runtimecontext.Due(contributions, runtimecontext.Visible{Text: last.Text, Clear: last.Clear})
	if !due {
		return nil
	}
	return []entry{{eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{PolicySeq: seq, Text: s.Text, Clear: s.Clear}}}
}

func (f *fold) planTurnEnd(reason, text string) []entry {
	why := map[string]error{ReasonStopped: errStopped, ReasonCancelled: errCancelled}[reason]
	if why == nil {
		why = errTurnOver
	}
	entries := f.planOpenCalls(why)
	if f.turn.stepOpen {
		entries = append(entries, f.planStepEnd())
	}
	return append(entries, entry{eventlog.TypeTurnEnd, eventlog.TurnEnd{Turn: f.turn.number, Reason: reason, Message: text}})
}

// The texts of calls that an earlier boot left open.
const (
	textNotStarted = "not started: the agent was restarted before this call began. Nothing happened; it is safe to ask for it again."
	textUnknown    = "outcome unknown: the agent was restarted while this call ran. It may have had its effect, a part of it, or none: verify before repeating it."
)

// planRecovery closes the calls that an earlier boot left open, so that the turn can go on. A
// request that has no answer stays open: it is repeated in its step. So does a call that waits for
// a person, unless its turn was cancelled.
func (f *fold) planRecovery() []entry {
	if !f.turn.open {
		return nil
	}
	var entries []entry
	waits := f.openCalls()
	if len(waits) > 0 && (f.turn.cancelled || !f.asked.open()) {
		entries, waits = f.planOpenCalls(errCancelled), nil
	}
	for _, c := range f.turn.calls {
		if c.done || slices.Contains(f.openCalls(), c) {
			continue
		}
		r := eventlog.ToolResult{CallID: c.id, Text: textNotStarted, IsError: true, Outcome: eventlog.OutcomeNotStarted}
		if c.started {
			r.Text, r.Outcome = textUnknown, eventlog.OutcomeUnknown
			if c.name == tool.TerminalName {
				r.Text += " Every terminal was ended with the agent: open it again."
			}
		}
		if !c.taken {
			entries = append(entries, f.planCall(c))
		}
		entries = append(entries, entry{eventlog.TypeToolResult, r})
	}
	if !f.turn.said { // the crash came between the two: the message must not be lost from the transcript
		m := f.messages[f.turn.message]
		entries = append(entries, entry{eventlog.TypeUserMessage, eventlog.UserMessage{
			Turn: f.turn.number, MessageUID: m.uid, Author: m.author, Content: runtimecontext.UserText(m.author, m.content),
		}})
	}
	if f.turn.stepOpen && f.turn.answered && len(waits) == 0 {
		entries = append(entries, f.planStepEnd())
	}
	return entries
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("agent: encoding %T: %v", v, err)) // our own plain structs
	}
	return b
}
