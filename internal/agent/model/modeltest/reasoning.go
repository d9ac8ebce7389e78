// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/transcript"
)

// What a provider wants back with its reasoning goes back: from the answer into the log, from there
// into the transcript, and from there into the next request. What it does not want stays in the log.
func testReasoning(t *testing.T, w Wire) {
	const thought = "let me <think>"
	calls := []model.ToolCall{{ID: "c1", Name: "bash", Arguments: `{"command":"ls"}`}}
	plain := w.Stream(model.Answer{Reasoning: thought, Content: "I look", Finish: model.FinishToolCalls, ToolCalls: calls})
	signed, inBody := w.Signed(thought)
	for name, tc := range map[string]struct {
		pieces []string
		back   bool   // ReturnReasoning
		want   string // in the next request; empty is that the thought is not in it
	}{
		"not wanted":             {plain, false, ""},
		"wanted":                 {plain, true, quoted(thought)},
		"signed, and not wanted": {signed, false, inBody},
		"signed, and wanted":     {signed, true, orText(inBody, quoted(thought))},
	} {
		t.Run(name, func(t *testing.T) {
			s := Serve(t, Pieces(tc.pieces...))
			p := w.New(t, Config{BaseURL: s.URL})
			r := Request()
			r.Messages = r.Messages[:1]
			r.Parameters.ReturnReasoning = tc.back
			o := Collect(t.Context(), p, mustPrepare(t, p, r))
			if o.Err != nil || o.Answer.Reasoning != thought {
				t.Fatalf("the answer is %+v, %v", o.Answer, o.Err)
			}
			direct := model.Message{
				Role: model.Assistant, Content: o.Answer.Content, Reasoning: o.Answer.Reasoning,
				ReasoningState: o.Answer.ReasoningState, ToolCalls: o.Answer.ToolCalls,
			}
			logged := throughLog(t, o.Answer)
			if diff := cmp.Diff(direct, logged[0]); diff != "" {
				t.Errorf("the log changed the answer (-answer +transcript):\n%s", diff)
			}
			r.Messages = append(r.Messages, logged...)
			body := mustPrepare(t, p, r).Body()
			if tc.want == "" && bytes.Contains(body, []byte(quoted(thought))) || !bytes.Contains(body, []byte(tc.want)) {
				t.Errorf("the next request is\n%s\nwant in it %q", body, tc.want)
			}
		})
	}
}

// throughLog is an answer, and the result of its one call, as a transcript that was read from a log.
func throughLog(t *testing.T, a *model.Answer) []model.Message {
	t.Helper()
	m := eventlog.AssistantMessage{
		Turn: 1, Step: 1, Content: a.Content, Reasoning: a.Reasoning, ReasoningState: a.ReasoningState, Finish: string(a.Finish),
	}
	for _, c := range a.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, eventlog.ModelCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	log, _, err := eventlog.Open(t.TempDir(), eventlog.Options{PodUID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, e := range []struct {
		kind eventlog.Type
		data any
	}{
		{eventlog.TypeAssistantMessage, m},
		{eventlog.TypeToolResult, eventlog.ToolResult{CallID: transcript.CallID(1, 1, 0), Text: "ok"}},
	} {
		if _, err := log.AppendSync(e.kind, e.data); err != nil {
			t.Fatal(err)
		}
	}
	var h transcript.History
	for e, err := range log.Events() {
		if err == nil {
			err = h.Apply(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	messages, _ := h.Request()
	return messages
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// quoted is a text as the providers write it.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
