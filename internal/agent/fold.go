// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/transcript"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// fold is everything that the log says about a session. It is changed by apply alone.
type fold struct {
	seq     uint64 // of the last event
	session *eventlog.SessionStart
	bootSeq uint64 // of the newest boot event
	ended   bool
	paused  bool // the lease is over

	suppressed bool // the model is not told the policy: what is told is what stands
	words      Words

	policy   applied
	history  transcript.History
	header   header
	messages []message // in the order in which they came
	byUID    map[string]int
	turn     turn
	turns    uint64
	taken    uint64 // turns that took a step: one that met a limit at once does not count against it
	steps    uint64
	usage    wire.Usage
	policies map[uint64]policy.Policy // by the seq of policy/applied, as far as a call may need it

	files files // as the model knows them

	asked *question // the newest request to a person
	asks  int       // how many there were

	measured measure // of the newest request that has an answer

	terminals map[string]string // that were open when last heard of, by name: why they are gone by now, or nothing

	modelFailure string // the last turn ended for want of an answer
}

// applied is the newest policy; the zero value when there is none yet.
type applied struct {
	seq    uint64
	doc    policy.Document
	stamp  policy.Stamp
	killed int
	time   time.Time
}

type header struct {
	seq uint64
	eventlog.RequestHeader
}

type message struct {
	uid, author, content string
	state                wire.MessageState
	turn                 uint64
	reply, reason        string
}

// turn is the newest turn.
type turn struct {
	open      bool
	number    int
	message   int // index
	said      bool
	step      int // the newest, 0 before the first
	stepOpen  bool
	attempt   int  // of the newest request of the step, 0 before the first
	answered  bool // the step has its answer
	called    bool // the answer asked for calls
	finish    string
	cancelled bool    // by a message that came while the turn ran
	told      uint64  // seq of the policy that the newest request stated
	asks      int     // requests to a person
	calls     []*call // of the newest answer
	answer    string  // the newest answer's text
}

type call struct {
	id, name, arguments string
	taken               bool // tool/call is logged
	started             bool
	done                bool
	mode, failure       string // once it is done
}

// measure is how large a transcript was, in tokens by the endpoint's count and in bytes by ours.
type measure struct {
	tokens int64
	bytes  int
}

func newFold() *fold {
	return &fold{byUID: map[string]int{}, policies: map[uint64]policy.Policy{}, terminals: map[string]string{}, words: policy.Contributions}
}

// apply takes in one event.
func (f *fold) apply(e eventlog.Event) error {
	if err := f.history.Apply(e); err != nil {
		return err
	}
	f.seq = e.Seq
	switch e.Type {
	case eventlog.TypeSessionStart:
		return with(e, f.applySession)
	case eventlog.TypeBoot:
		f.bootSeq = e.Seq
		f.loseTerminals(terminalRestarted)
	case eventlog.TypePolicyApplied:
		return with(e, func(p eventlog.PolicyApplied) error { return f.applyPolicy(e, p) })
	case eventlog.TypeMessageReceived:
		return with(e, f.applyReceived)
	case eventlog.TypeRequestHeader:
		return with(e, func(p eventlog.RequestHeader) error { f.header = header{e.Seq, p}; return nil })
	case eventlog.TypeToolCall:
		return with(e, func(p eventlog.ToolCall) error {
			return f.onCall(p.CallID, func(c *call) { c.taken = true })
		})
	case eventlog.TypeToolStart:
		return with(e, func(p eventlog.ToolStart) error {
			return f.onCall(p.CallID, func(c *call) { c.started = true })
		})
	case eventlog.TypeToolResult:
		return with(e, func(p eventlog.ToolResult) error {
			f.files.see(e.Seq, p.File)
			f.noteTerminal(p.Terminal)
			return f.onCall(p.CallID, func(c *call) { c.done = true; c.mode, c.failure = endedAs(p) })
		})
	case eventlog.TypeApprovalRequested:
		return with(e, func(p eventlog.ApprovalRequested) error { return f.applyAsked(e, p) })
	case eventlog.TypeApprovalDecided:
		return with(e, f.applyDecided)
	case eventlog.TypeGrantUsed:
		return with(e, f.applyUsed)
	case eventlog.TypeLeaseExpired:
		f.paused = true
		f.loseTerminals(terminalUnheard)
	case eventlog.TypeLeaseRenewed:
		f.paused = false
	case eventlog.TypeSessionEnd:
		f.ended = true
	default:
		return f.applyTurn(e)
	}
	return nil
}

func (f *fold) applyTurn(e eventlog.Event) error {
	switch e.Type {
	case eventlog.TypeTurnStart:
		return with(e, f.applyTurnStart)
	case eventlog.TypeUserMessage:
		f.turn.said = true
	case eventlog.TypeStepStart:
		return with(e, func(p eventlog.StepStart) error {
			f.steps++
			if p.Step == 1 {
				f.taken++
			}
			t := &f.turn
			t.step, t.stepOpen, t.attempt, t.answered, t.called, t.calls = p.Step, true, 0, false, false, nil
			return nil
		})
	case eventlog.TypeRequestSent:
		return with(e, func(p eventlog.RequestSent) error {
			if p.Ask == "" { // a request for a summary asks for no call
				f.turn.told, f.turn.attempt = p.PolicySeq, p.Attempt
			}
			return nil
		})
	case eventlog.TypeRetry:
		return with(e, func(p eventlog.Retry) error { f.use(p.Usage); return nil })
	case eventlog.TypeCompaction:
		return with(e, f.applyCompaction)
	case eventlog.TypeAssistantMessage:
		return with(e, f.applyAnswer)
	case eventlog.TypeStepEnd:
		f.turn.stepOpen, f.turn.calls = false, nil
	case eventlog.TypeTurnEnd:
		return with(e, f.applyTurnEnd)
	}
	return nil
}

func with[T any](e eventlog.Event, f func(T) error) error {
	var payload T
	if err := e.Decode(&payload); err != nil {
		return err
	}
	if err := f(payload); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

func (f *fold) applySession(p eventlog.SessionStart) error {
	f.session = &p
	var c wire.Config
	if len(p.Config) > 0 {
		if err := json.Unmarshal(p.Config, &c); err != nil {
			return fmt.Errorf("decoding the configuration: %w", err)
		}
	}
	f.suppressed = c.RuntimeContext == wire.RuntimeContextSuppressed
	return nil
}

func (f *fold) applyPolicy(e eventlog.Event, p eventlog.PolicyApplied) error {
	doc, err := policy.Decode([]byte(p.Policy))
	if err != nil {
		return err
	}
	a := applied{seq: e.Seq, doc: doc, killed: p.Killed, time: e.Time}
	if err := json.Unmarshal(p.Stamp, &a.stamp); err != nil {
		return fmt.Errorf("decoding the stamp: %w", err)
	}
	switch from, to := f.policy.doc.Policy, doc.Policy; {
	case f.policy.seq == 0 || from.Profile() == to.Profile():
	case policy.EndsProcesses(from, to):
		f.loseTerminals(terminalNarrowed)
	default:
		f.loseTerminals(terminalWidened)
	}
	// Only the newest two can be named by a call that is still to come: the standing one and
	// the one that the request in flight stated.
	for seq := range f.policies {
		if seq != f.policy.seq && seq != f.turn.told {
			delete(f.policies, seq)
		}
	}
	f.policy, f.policies[e.Seq] = a, doc.Policy
	return nil
}

// noteTerminal takes in what the model has been told of a terminal.
func (f *fold) noteTerminal(t *eventlog.TerminalState) {
	switch {
	case t == nil:
	case t.Open:
		f.terminals[t.Name] = ""
	default:
		delete(f.terminals, t.Name)
	}
}

// loseTerminals notes why no terminal is open any more.
func (f *fold) loseTerminals(why string) {
	for name, before := range f.terminals {
		if before == "" {
			f.terminals[name] = why
		}
	}
}

func (f *fold) applyReceived(p eventlog.MessageReceived) error {
	if _, twice := f.byUID[p.UID]; twice {
		return fmt.Errorf("message %q was received before", p.UID)
	}
	f.byUID[p.UID] = len(f.messages)
	f.messages = append(f.messages, message{uid: p.UID, author: p.Author, content: p.Content, state: wire.Delivered})
	// It cancels the turn that runs now, if one does, and none of those that are still to come
	// before its own.
	f.turn.cancelled = f.turn.cancelled || p.Interrupt
	return nil
}

func (f *fold) applyTurnStart(p eventlog.TurnStart) error {
	i, known := f.byUID[p.MessageUID]
	if !known {
		return fmt.Errorf("message %q was never received", p.MessageUID)
	}
	f.turns++
	f.turn = turn{open: true, number: p.Turn, message: i}
	f.messages[i].turn = uint64(p.Turn)
	return nil
}

func (f *fold) applyAnswer(p eventlog.AssistantMessage) error {
	f.modelFailure = ""
	f.use(p.Usage)
	f.measured = measure{p.Usage.Input + p.Usage.CachedInput + p.Usage.Output, f.history.Bytes()}
	t := &f.turn
	t.answer, t.calls, t.answered, t.called, t.finish = p.Content, nil, true, len(p.ToolCalls) > 0, p.Finish
	for i, c := range p.ToolCalls {
		f.turn.calls = append(f.turn.calls, &call{
			id: transcript.CallID(p.Turn, p.Step, i), name: c.Name, arguments: c.Arguments,
		})
	}
	return nil
}

func (f *fold) use(u eventlog.Usage) {
	f.usage.Input += u.Input
	f.usage.CachedInput += u.CachedInput
	f.usage.Output += u.Output
}

func (f *fold) applyCompaction(c eventlog.Compaction) error {
	f.use(c.Usage)
	if c.Summary != "" {
		f.measured = measure{} // nothing of what was measured is left
	}
	return nil
}

func (f *fold) applyTurnEnd(p eventlog.TurnEnd) error {
	m := &f.messages[f.turn.message]
	m.state, m.reason, m.reply = wire.Answered, p.Reason, cutText(f.turn.answer, wire.MaxReply)
	m.content = "" // it stands in the transcript now
	if p.Reason != ReasonCompleted {
		m.reply = cutText(p.Message, wire.MaxReply)
	}
	if p.Reason == ReasonModelFailed {
		f.modelFailure = p.Message
	}
	f.turn.open, f.turn.stepOpen, f.turn.calls = false, false, nil
	return nil
}

func (f *fold) onCall(id string, do func(*call)) error {
	i := slices.IndexFunc(f.turn.calls, func(c *call) bool { return c.id == id })
	if i < 0 {
		return fmt.Errorf("call %s is not open", id)
	}
	do(f.turn.calls[i])
	return nil
}

// next is the index of the message that the next turn answers, or -1.
func (f *fold) next() int {
	if f.ended || f.turn.open {
		return -1
	}
	return slices.IndexFunc(f.messages, func(m message) bool { return m.state == wire.Delivered })
}
