// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
)

// size is about how much of a request a message takes, in bytes.
func size(m *model.Message) int {
	n := len(m.Content) + len(m.Reasoning) + len(m.ReasoningState)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// Bytes is about how much of a request the transcript takes.
func (h *History) Bytes() int { return h.bytes }

// Prefix is the older part of the transcript, up to what an event put there, as the request for a
// summary carries it: with the newest snapshot at its end where it is not the last one
// in it. It returns the seq of that snapshot too.
func (h *History) Prefix(upTo uint64) ([]model.Message, uint64) {
	n := h.until(upTo)
	messages := slices.Clone(h.messages[:n])
	var shown Snapshot
	for i := n - 1; i >= 0 && shown.Seq == 0; i-- {
		if seq := h.marks[i].snapshot; seq != 0 {
			shown = Snapshot{Seq: seq, Text: messages[i].Content}
		}
	}
	if h.last.Seq == 0 || h.last.Text == shown.Text {
		return messages, shown.Seq
	}
	return append(messages, model.Message{Role: model.User, Content: h.last.Text}), h.last.Seq
}

// until counts the messages that events up to seq put there.
func (h *History) until(seq uint64) int {
	i := slices.IndexFunc(h.marks, func(k mark) bool { return k.key > seq })
	if i < 0 {
		return len(h.marks)
	}
	return i
}

// Older says where to part the transcript so that about keep bytes of its end stay: up to which event,
// and how many bytes stand before. A call is never parted from its result.
func (h *History) Older(keep int) (upTo uint64, bytes int) {
	n, rest := len(h.messages), 0
	for n > 0 && rest+size(&h.messages[n-1]) <= keep {
		n--
		rest += size(&h.messages[n])
	}
	for n > 0 && n < len(h.messages) && (h.messages[n].Role == model.Tool || h.marks[n].key == h.marks[n-1].key) {
		rest -= size(&h.messages[n])
		n++
	}
	if n == 0 {
		return 0, 0
	}
	return h.marks[n-1].key, h.bytes - rest
}

// Oversized are the calls, up to an event, whose results are longer than shortening them to keep bytes
// would leave, and how many bytes that saves.
func (h *History) Oversized(upTo uint64, keep int) (calls []string, saved int) {
	for i := range h.until(upTo) {
		if more := len(h.messages[i].Content) - len(shorten(h.messages[i].Content, keep)); h.marks[i].call != "" && more > 0 {
			calls, saved = append(calls, h.marks[i].call), saved+more
		}
	}
	return calls, saved
}

// compact cuts results and puts a summary in the place of what is older. Everything that stands then
// is new to the model.
func (h *History) compact(c eventlog.Compaction) error {
	if h.answer != nil {
		return fmt.Errorf("a call has no result")
	}
	for i := range h.messages {
		if h.marks[i].call != "" && slices.Contains(c.Cut, h.marks[i].call) {
			h.messages[i].Content = shorten(h.messages[i].Content, c.Keep)
		}
	}
	if c.Summary != "" {
		h.replace(h.until(c.UpTo), c)
	}
	h.bytes, h.sent = 0, 0
	for i := range h.messages {
		h.bytes += size(&h.messages[i])
	}
	return nil
}

// replace puts the summary in the place of the first n messages.
func (h *History) replace(n int, c eventlog.Compaction) {
	h.messages = slices.Concat([]model.Message{{Role: model.User, Content: c.Summary}}, h.messages[n:])
	h.marks = slices.Concat([]mark{{key: c.UpTo}}, h.marks[n:])
	if h.pending && h.at != atEnd {
		h.at = max(1, h.at-n+1)
	}
	if h.carried.Seq == 0 || slices.ContainsFunc(h.marks, func(k mark) bool { return k.snapshot == h.carried.Seq }) {
		return
	}
	h.carried = Snapshot{}
	if !h.pending {
		h.last, h.lost = Snapshot{}, true
	}
}

// shorten keeps the two ends of a text, keep bytes in all, and says how much is left out.
func shorten(s string, keep int) string {
	const slack = 128 // what is hardly too long stays
	if keep <= 0 || len(s) <= keep+slack {
		return s
	}
	head, tail := keep/2, len(s)-keep/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[… %d bytes of this result were left out later on …]\n%s", s[:head], tail-head, s[tail:])
}
