// SPDX-License-Identifier: Apache-2.0

package transcript

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
)

// fold reads a log in shorthand: u user message, s<text> snapshot, r request, a<n> answer with n calls,
// t<i> result of the i-th call, e end of step. It returns the next request in the same
// shorthand, with | where the newest request ended.
func fold(t *testing.T, log string) (string, error) {
	t.Helper()
	h, seq := &History{}, uint64(0)
	for word := range strings.FieldsSeq(log) {
		kinds := map[byte]struct {
			kind eventlog.Type
			data any
		}{
			'u': {eventlog.TypeUserMessage, eventlog.UserMessage{Content: "u"}},
			's': {eventlog.TypeContextSnapshot, eventlog.ContextSnapshot{Text: word}},
			'r': {eventlog.TypeRequestSent, eventlog.RequestSent{}},
			'a': {eventlog.TypeAssistantMessage, eventlog.AssistantMessage{
				Turn: 1, Step: 1, Content: "a", ToolCalls: make([]eventlog.ModelCall, word[len(word)-1]-'0'),
			}},
			't': {eventlog.TypeToolResult, eventlog.ToolResult{CallID: "1.1." + word[1:], Text: word}},
			'e': {eventlog.TypeStepEnd, eventlog.StepEnd{}},
		}
		seq++
		data, err := json.Marshal(kinds[word[0]].data)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Apply(eventlog.Event{Seq: seq, Type: kinds[word[0]].kind, Data: data}); err != nil {
			return "", err
		}
	}
	messages, _ := h.Request()
	var out []string
	for i, m := range messages {
		if i == h.Sent() {
			out = append(out, "|")
		}
		out = append(out, m.Content)
	}
	return strings.Join(out, " "), nil
}

// Where snapshots stand, and which of them are carried.
func TestPlaces(t *testing.T) {
	for name, tc := range map[string]struct{ log, want string }{
		"at the beginning":                           {"sA u", "| sA u"},
		"behind all that was there":                  {"sA u r a0 e sB", "sA u | a sB"},
		"the last one counts":                        {"sA u r a0 e sB sC", "sA u | a sC"},
		"it stands where the last one was logged":    {"sA u r a0 e sB u sC", "sA u | a u sC"},
		"to and fro is free":                         {"sA u r a0 e sB sA u", "sA u | a u"},
		"to and fro before the first request":        {"sA sB sA u", "| sA u"},
		"during a request: behind the answer":        {"sA u r sB a0 e", "sA u | a sB"},
		"during calls: behind their results":         {"sA u r a2 sB t1 t2 e", "sA u | a t1 t2 sB"},
		"between results: behind the last":           {"sA u r a2 t1 sB t2 e", "sA u | a t1 t2 sB"},
		"results stand in the model's order":         {"sA u r a3 t3 t1 t2 e", "sA u | a t1 t2 t3"},
		"a request that failed has carried it":       {"sA u r e sB u r e sB", "sA u sB u"},
		"to and fro after a request that failed":     {"sA u r sB e sA", "sA u"},
		"what was carried stays":                     {"sA u r a0 e sB u r a0 e sA u r", "sA u a sB u a sA u"},
		"another request in the same step states it": {"sA u r sB r", "sA u sB"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fold(t, tc.log)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "| "), strings.TrimPrefix(got, "| ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.log, diff)
			}
		})
	}
}

// A log that makes no sense is an error, never a guess.
func TestSenselessLogs(t *testing.T) {
	for _, log := range []string{"u r a1 e", "u r a1 t2", "u r a1 t1 t1", "u r a2 t1 t1", "t1"} {
		if got, err := fold(t, log); err == nil {
			t.Errorf("%s gave %s", log, got)
		}
	}
}
