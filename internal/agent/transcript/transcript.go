// SPDX-License-Identifier: Apache-2.0

// Package transcript folds the event log into what the model sees. It decides the
// order of messages, where a context snapshot stands, and which snapshots no
// request needs to carry. It refuses to know why anything was logged: it is a
// pure function of the events, so that a restart, a replay and the running
// agent always agree.
//
// What a request has carried is never changed, moved or taken away again:
// everything new stands behind it.
package transcript

import (
	"fmt"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
)

// CallID is the agent's name of the index-th call (from 0) of an answer, unique in a session.
func CallID(turn, step, index int) string { return fmt.Sprintf("%d.%d.%d", turn, step, index+1) }

// Snapshot is a logged context snapshot.
type Snapshot struct {
	Seq   uint64
	Text  string
	Clear bool
}

// atEnd is the place of a snapshot that was logged while a step was open: behind
// that step's last result, wherever that will be.
const atEnd = -1

// History is what the model has been told so far, and what it will be told next.
// The zero value is the history of an empty log.
type History struct {
	messages []model.Message
	marks    []mark   // of the messages, one each
	bytes    int      // of the messages
	sent     int      // messages[:sent] have been carried by a request
	open     bool     // a request was sent and its step has not ended
	answer   *answer  // whose calls do not all have results yet
	last     Snapshot // the newest one logged
	carried  Snapshot // the newest one that a request carried
	pending  bool     // last was not carried yet
	lost     bool     // compaction took the last one away, and no other was logged since
	at       int      // index in messages where last will stand
}

// mark says where a message came from.
type mark struct {
	key      uint64 // seq of the event that put it there; never less than the one before it
	call     string // whose result it is
	snapshot uint64 // seq of the snapshot that it is
}

type answer struct {
	ids     []string // the model's names of the calls, in its order
	callIDs []string
	results []*string
	missing int
}

// Apply takes in one event. Types that do not concern the transcript are ignored.
func (h *History) Apply(e eventlog.Event) error {
	switch e.Type {
	case eventlog.TypeUserMessage:
		return apply(e, func(m eventlog.UserMessage) error {
			h.add(e.Seq, model.Message{Role: model.User, Content: m.Content}, mark{})
			return nil
		})
	case eventlog.TypeContextSnapshot:
		return apply(e, func(s eventlog.ContextSnapshot) error { return h.snapshot(e.Seq, s) })
	case eventlog.TypeRequestSent:
		return apply(e, func(r eventlog.RequestSent) error {
			if r.Ask == "" {
				h.carry()
			}
			return nil
		})
	case eventlog.TypeAssistantMessage:
		return apply(e, func(m eventlog.AssistantMessage) error { return h.assistant(e.Seq, m) })
	case eventlog.TypeToolResult:
		return apply(e, func(r eventlog.ToolResult) error { return h.result(e.Seq, r) })
	case eventlog.TypeCompaction:
		return apply(e, h.compact)
	case eventlog.TypeStepEnd, eventlog.TypeTurnEnd:
		return h.endStep(e)
	}
	return nil
}

func apply[T any](e eventlog.Event, f func(T) error) error {
	var payload T
	if err := e.Decode(&payload); err != nil {
		return err
	}
	if err := f(payload); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

// Last is the newest snapshot in the log; the zero value when there is none.
func (h *History) Last() Snapshot { return h.last }

// Sent is how many messages the newest request carried.
func (h *History) Sent() int { return h.sent }

// Request is what the next request will carry, and the seq of its last snapshot.
func (h *History) Request() ([]model.Message, uint64) {
	if !h.showsPending() {
		return slices.Clone(h.messages), h.carried.Seq
	}
	at := h.at
	if at == atEnd {
		at = len(h.messages)
	}
	return slices.Concat(h.messages[:at], []model.Message{{Role: model.User, Content: h.last.Text}}, h.messages[at:]), h.last.Seq
}

// showsPending is false where switching to and fro came back to what the model knows.
func (h *History) showsPending() bool {
	return h.pending && (h.carried.Seq == 0 || h.last.Text != h.carried.Text)
}

func (h *History) carry() {
	if h.showsPending() {
		at := h.at
		if at == atEnd {
			at = len(h.messages)
		}
		h.messages, _ = h.Request()
		h.marks = slices.Insert(h.marks, at, mark{key: h.keyAt(at), snapshot: h.last.Seq})
		h.bytes += len(h.last.Text)
		h.carried = h.last
	}
	h.pending, h.open, h.sent = false, true, len(h.messages)
}

// keyAt is the key of a snapshot that is put in at an index: its own seq, as far as what stands
// before and behind it allows.
func (h *History) keyAt(at int) uint64 {
	key := h.last.Seq
	if at > 0 {
		key = max(key, h.marks[at-1].key)
	}
	if at < len(h.marks) {
		key = min(key, h.marks[at].key)
	}
	return key
}

func (h *History) add(seq uint64, m model.Message, k mark) {
	k.key = seq
	h.messages, h.marks = append(h.messages, m), append(h.marks, k)
	h.bytes += size(&m)
}

func (h *History) snapshot(seq uint64, s eventlog.ContextSnapshot) error {
	h.last, h.pending, h.at = Snapshot{Seq: seq, Text: s.Text, Clear: s.Clear}, true, len(h.messages)
	switch {
	case h.open:
		h.at = atEnd
	case h.lost: // compaction took the last one away: it stands behind the summary again
		h.at = 1
	}
	h.lost = false
	return nil
}

func (h *History) assistant(seq uint64, m eventlog.AssistantMessage) error {
	calls := make([]model.ToolCall, len(m.ToolCalls))
	a := &answer{results: make([]*string, len(m.ToolCalls)), missing: len(m.ToolCalls)}
	for i, c := range m.ToolCalls {
		calls[i] = model.ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments}
		a.ids = append(a.ids, c.ID)
		a.callIDs = append(a.callIDs, CallID(m.Turn, m.Step, i))
	}
	if len(calls) == 0 {
		calls = nil
	} else {
		h.answer = a
	}
	h.add(seq, model.Message{
		Role: model.Assistant, Content: m.Content, Reasoning: m.Reasoning, ReasoningState: m.ReasoningState, ToolCalls: calls,
	}, mark{})
	return nil
}

// result keeps a result until all of the answer's calls have one, and then puts them
// behind the answer in the model's order.
func (h *History) result(seq uint64, r eventlog.ToolResult) error {
	if h.answer == nil {
		return fmt.Errorf("call %s is not open", r.CallID)
	}
	i := slices.Index(h.answer.callIDs, r.CallID)
	if i < 0 || h.answer.results[i] != nil {
		return fmt.Errorf("call %s is not open", r.CallID)
	}
	h.answer.results[i] = &r.Text
	if h.answer.missing--; h.answer.missing > 0 {
		return nil
	}
	for i, text := range h.answer.results {
		h.add(seq, model.Message{Role: model.Tool, Content: *text, ToolCallID: h.answer.ids[i]}, mark{call: h.answer.callIDs[i]})
	}
	h.answer = nil
	return nil
}

func (h *History) endStep(e eventlog.Event) error {
	if h.answer != nil {
		return fmt.Errorf("event %d (%s): a call has no result", e.Seq, e.Type)
	}
	h.open = false
	if h.pending && h.at == atEnd {
		h.at = len(h.messages)
	}
	return nil
}
