// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
)

func applyTo(t *testing.T, h *History, seq uint64, kind eventlog.Type, data any) {
	t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Apply(eventlog.Event{Seq: seq, Type: kind, Data: raw}); err != nil {
		t.Fatal(err)
	}
}

// told is a history of a snapshot (1), a message (2), a call with a result of n bytes (5), and an answer (9).
func told(t *testing.T, n int) *History {
	h := &History{}
	applyTo(t, h, 1, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sA"})
	applyTo(t, h, 2, eventlog.TypeUserMessage, eventlog.UserMessage{Content: "u"})
	applyTo(t, h, 3, eventlog.TypeRequestSent, eventlog.RequestSent{})
	applyTo(t, h, 4, eventlog.TypeAssistantMessage, eventlog.AssistantMessage{Turn: 1, Step: 1, Content: "call", ToolCalls: make([]eventlog.ModelCall, 1)})
	applyTo(t, h, 5, eventlog.TypeToolResult, eventlog.ToolResult{CallID: "1.1.1", Text: strings.Repeat("ä", n/2)})
	applyTo(t, h, 6, eventlog.TypeStepEnd, eventlog.StepEnd{})
	applyTo(t, h, 8, eventlog.TypeRequestSent, eventlog.RequestSent{})
	applyTo(t, h, 9, eventlog.TypeAssistantMessage, eventlog.AssistantMessage{Turn: 1, Step: 2, Content: "answer"})
	applyTo(t, h, 10, eventlog.TypeStepEnd, eventlog.StepEnd{})
	return h
}

func texts(h *History) []string {
	messages, _ := h.Request()
	var all []string
	for _, m := range messages {
		all = append(all, m.Content)
	}
	return all
}

// A transcript is never parted between a call and its result, and what stays is as much as was asked for.
func TestOlder(t *testing.T) {
	h := told(t, 100)
	for keep, want := range map[int]uint64{0: 9, 6: 5, 50: 5, 106: 5, 110: 2, 111: 1, 1000: 0} {
		if got, _ := h.Older(keep); got != want {
			t.Errorf("Older(%d) = %d, want %d", keep, got, want)
		}
	}
}

// The last snapshot that a summary takes away stands behind it again; one that stays is not told twice.
func TestWhereTheSnapshotStandsAfterACompaction(t *testing.T) {
	h := told(t, 100)
	applyTo(t, h, 11, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 5, Summary: "sum"})
	if h.Last() != (Snapshot{}) || h.Sent() != 0 {
		t.Errorf("the last snapshot is %+v, sent %d: both are gone", h.Last(), h.Sent())
	}
	applyTo(t, h, 12, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sA"})
	if diff := cmp.Diff([]string{"sum", "sA", "answer"}, texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	applyTo(t, h, 13, eventlog.TypeRequestSent, eventlog.RequestSent{})
	applyTo(t, h, 14, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 5, Summary: "sum 2"})
	if diff := cmp.Diff([]string{"sum 2", "sA", "answer"}, texts(h)); diff != "" || h.Last().Text != "sA" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The snapshot is newer than the answer behind it; still only what stands before the answer goes.
	h = told(t, 100)
	applyTo(t, h, 11, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 5, Summary: "sum"})
	applyTo(t, h, 12, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sA"})
	applyTo(t, h, 13, eventlog.TypeRequestSent, eventlog.RequestSent{})
	applyTo(t, h, 14, eventlog.TypeUserMessage, eventlog.UserMessage{Content: "u2"})
	upTo, _ := h.Older(2)
	applyTo(t, h, 15, eventlog.TypeCompaction, eventlog.Compaction{UpTo: upTo, Summary: "sum 2"})
	if diff := cmp.Diff([]string{"sum 2", "u2"}, texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h = told(t, 100)
	applyTo(t, h, 11, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 2, Summary: "sum"})
	applyTo(t, h, 12, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sA"})
	applyTo(t, h, 13, eventlog.TypeRequestSent, eventlog.RequestSent{})
	applyTo(t, h, 14, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 5, Summary: "sum 2"})
	if diff := cmp.Diff([]string{"sum 2", "answer"}, texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	h = told(t, 100)
	applyTo(t, h, 11, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sB"}) // no request has carried it
	applyTo(t, h, 12, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 2, Summary: "sum"})
	if diff := cmp.Diff([]string{"sum", "call", strings.Repeat("ä", 50), "answer", "sB"}, texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What asks for a summary states the newest snapshot, and leaves no trace.
func TestPrefix(t *testing.T) {
	h := told(t, 100)
	applyTo(t, h, 11, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sB"})
	before := texts(h)
	messages, seq := h.Prefix(2)
	if len(messages) != 3 || messages[2].Content != "sB" || seq != 11 {
		t.Errorf("Prefix() = %+v, %d", messages, seq)
	}
	applyTo(t, h, 12, eventlog.TypeRequestSent, eventlog.RequestSent{Ask: "?", UpTo: 2})
	if diff := cmp.Diff(before, texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	applyTo(t, h, 13, eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: "sA"}) // back again: sB is not told
	if diff := cmp.Diff(before[:len(before)-1], texts(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A result that is cut keeps its ends and whole characters.
func TestCutResults(t *testing.T) {
	h := told(t, 1000)
	if calls, saved := h.Oversized(9, 101); len(calls) != 1 || saved < 700 {
		t.Errorf("Oversized() = %v, %d", calls, saved)
	}
	if calls, _ := h.Oversized(4, 101); calls != nil {
		t.Errorf("Oversized() = %v before the result", calls)
	}
	applyTo(t, h, 11, eventlog.TypeCompaction, eventlog.Compaction{UpTo: 9, Cut: []string{"1.1.1"}, Keep: 101})
	got := texts(h)[3]
	if !utf8.ValidString(got) || !strings.HasPrefix(got, "ää") || !strings.HasSuffix(got, "ä") || len(got) > 200 {
		t.Errorf("the result is %q", got)
	}
	if calls, _ := h.Oversized(9, 101); calls != nil {
		t.Errorf("%v would be cut again", calls)
	}
}
