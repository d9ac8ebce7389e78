// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
)

func newAnthropic(t *testing.T, c model.Config) *model.Anthropic {
	t.Helper()
	p, err := model.NewAnthropic(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// event is one event of a stream, hand-written.
func event(kind, format string, args ...any) string {
	fields := fmt.Sprintf(format, args...)
	if fields != "" {
		fields = "," + fields
	}
	return fmt.Sprintf("event: %s\ndata: {\"type\":%s%s}\n\n", kind, quote(kind), fields)
}

func messageStart(usage string) string {
	return event("message_start", `"message":{"id":"m","type":"message","role":"assistant","content":[],"model":"x","stop_reason":null,"usage":%s}`, usage)
}

func blockStart(index int, fields string) string {
	return event("content_block_start", `"index":%d,"content_block":{%s}`, index, fields)
}

func blockDelta(index int, kind, field, value string) string {
	return event("content_block_delta", `"index":%d,"delta":{"type":%s,%s:%s}`, index, quote(kind), quote(field), quote(value))
}

func messageEnd(reason, usage string) string {
	return event("message_delta", `"delta":{"stop_reason":%s,"stop_sequence":null},"usage":%s`, quote(reason), usage) + event("message_stop", "")
}

var stopReasons = map[model.Finish]string{model.FinishStop: "end_turn", model.FinishToolCalls: "tool_use", model.FinishLength: "max_tokens"}

func blockStream(a model.Answer) []string {
	u := a.Usage
	input := fmt.Sprintf(`"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d`, u.Input/2, u.Input-u.Input/2, u.CachedInput)
	pieces := []string{messageStart(`{` + input + `,"output_tokens":1}`)}
	n := 0
	add := func(start, kind, field, text string) {
		half := halves(text)
		pieces = append(pieces, blockStart(n, start), blockDelta(n, kind, field, half[0]), blockDelta(n, kind, field, half[1]), event("content_block_stop", `"index":%d`, n))
		n++
	}
	if a.Reasoning != "" {
		add(`"type":"thinking","thinking":"","signature":""`, "thinking_delta", "thinking", a.Reasoning)
	}
	if a.Content != "" {
		add(`"type":"text","text":""`, "text_delta", "text", a.Content)
	}
	for _, c := range a.ToolCalls {
		add(fmt.Sprintf(`"type":"tool_use","id":%s,"name":%s,"input":{}`, quote(c.ID), quote(c.Name)), "input_json_delta", "partial_json", c.Arguments)
	}
	reason, ok := stopReasons[a.Finish]
	if !ok {
		reason = string(a.Finish)
	}
	return append(pieces, messageEnd(reason, fmt.Sprintf(`{%s,"output_tokens":%d,"output_tokens_details":{"thinking_tokens":%d}}`, input, u.Output, u.Reasoning)))
}

const breakpoint = `,"cache_control":{"type":"ephemeral"}`

// splitBlocks takes a body apart into its head and all blocks, each with its role
// and without its breakpoint.
func splitBlocks(body []byte) (head []byte, blocks []json.RawMessage, err error) {
	var all struct {
		Messages []struct {
			Role    string            `json:"role"`
			Content []json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	head, _, _ = bytes.Cut(body, []byte(`"messages":`))
	err = json.Unmarshal(body, &all)
	for _, m := range all.Messages {
		for _, b := range m.Content {
			b, _ = bytes.CutSuffix(b, []byte(breakpoint+"}"))
			blocks = append(blocks, json.RawMessage(m.Role+" "+strings.TrimSuffix(string(b), "}")))
		}
	}
	return head, blocks, err
}

func TestAnthropicContract(t *testing.T) {
	modeltest.Test(t, modeltest.Wire{
		New: func(t *testing.T, c modeltest.Config) model.Provider {
			return newAnthropic(t, model.Config{BaseURL: c.BaseURL, KeyFile: c.KeyFile, IdleTimeout: c.IdleTimeout})
		},
		Stream: blockStream,
		Text: func(s string) string {
			return blockStart(0, `"type":"text","text":""`) + blockDelta(0, "text_delta", "text", s)
		},
		Call: func(id string, arguments ...string) []string {
			pieces := []string{blockStart(1, fmt.Sprintf(`"type":"tool_use","id":%s,"name":"bash","input":{}`, quote(id)))}
			for _, a := range arguments {
				pieces = append(pieces, blockDelta(1, "input_json_delta", "partial_json", a))
			}
			return pieces
		},
		Signed: func(reasoning string) ([]string, string) {
			return []string{
				messageStart(`{"input_tokens":1,"output_tokens":1}`),
				blockStart(0, `"type":"thinking","thinking":"","signature":""`), blockDelta(0, "thinking_delta", "thinking", reasoning),
				blockDelta(0, "signature_delta", "signature", "signed=="),
				blockStart(1, `"type":"tool_use","id":"c1","name":"bash","input":{}`), messageEnd("tool_use", `{"output_tokens":5}`),
			}, `{"type":"thinking","thinking":` + quoted(reasoning) + `,"signature":"signed=="}`
		},
		Failure: func(message string) string {
			return event("error", `"error":{"type":"overloaded_error","message":%s}`, quote(message))
		},
		Key:   func(h http.Header) string { return h.Get("X-Api-Key") },
		Split: splitBlocks,
	})
}

// The bytes, as they are. A change here breaks every running session's cache and
// the rebuilding of requests from older logs.
func TestMessageBytes(t *testing.T) {
	p := newAnthropic(t, model.Config{BaseURL: "http://127.0.0.1:1"})
	const head = `{"model":"test-model","max_tokens":4096,"output_config":{"effort":"low"},"stream":true,"tool_choice":{"type":"auto"},` +
		`"tools":[{"name":"read","description":"Reads a file.","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}},` +
		`{"name":"bash","description":"Runs a command.","input_schema":{"type":"object","properties":{"z":{},"a":{}}}}],` +
		`"system":[{"type":"text","text":"You are <a> test & more."}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"read \u2028 both <files>"` + breakpoint + `}]},`
	const calls = `{"type":"tool_use","id":"c1","name":"read","input":{"path":"a"}},` +
		`{"type":"tool_use","id":"c2","name":"read","input":{"invalid_arguments":"{\"path\": broken"}}]},`
	const results = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"A"},{"type":"tool_result","tool_use_id":"c2"`
	r := modeltest.Request()
	for name, tc := range map[string]struct {
		change func()
		want   string
	}{
		"unsigned reasoning stays in the log": {func() {}, head + `{"role":"assistant","content":[` + calls + results + breakpoint + `}]}]}`},
		"unsigned reasoning goes back where it is wanted": {func() { r.Parameters.ReturnReasoning = true },
			head + `{"role":"assistant","content":[{"type":"thinking","thinking":"two calls","signature":""},` + calls + results + breakpoint + `}]}]}`},
		"signed thinking goes back as it came": {func() {
			r.Messages[1].Content = "I look, then I read"
			r.Messages[1].ReasoningState = json.RawMessage(`[{"type":"thinking","bytes":3,"signature":"s1"},{"type":"text","bytes":6},{"type":"redacted_thinking","data":"d"},` +
				`{"type":"tool_use"},{"type":"thinking","bytes":6,"signature":"s2"},{"type":"text","bytes":13},{"type":"tool_use"}]`)
		}, head + `{"role":"assistant","content":[{"type":"thinking","thinking":"two","signature":"s1"},{"type":"text","text":"I look"},{"type":"redacted_thinking","data":"d"},` +
			`{"type":"tool_use","id":"c1","name":"read","input":{"path":"a"}},{"type":"thinking","thinking":" calls","signature":"s2"},{"type":"text","text":", then I read"},` +
			`{"type":"tool_use","id":"c2","name":"read","input":{"invalid_arguments":"{\"path\": broken"}}]},` + results + breakpoint + `}]}]}`},
		"a snapshot behind the results is in their message": {func() { r.Messages = append(r.Messages, model.Message{Role: model.User, Content: "snapshot"}) },
			head + `{"role":"assistant","content":[` + calls + results + `},{"type":"text","text":"snapshot"` + breakpoint + `}]}]}`},
		"nothing that is not set": {func() {
			r = model.Request{Model: "m", Parameters: model.Parameters{Thinking: "adaptive"}, Messages: []model.Message{
				{Role: model.User, Content: " "}, {Role: model.Assistant, Content: "\n"}, {Role: model.User, Content: "hi"}}}
		}, `{"model":"m","max_tokens":16384,"thinking":{"type":"adaptive"},"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"(empty)"` + breakpoint +
			`},{"type":"text","text":"hi"` + breakpoint + `}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			r = modeltest.Request()
			tc.change()
			got, err := p.Prepare(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got.Body())); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// What a stream may hold beside the plain case, and where it goes.
func TestMessageStreams(t *testing.T) {
	const usage = `{"input_tokens":100,"output_tokens":1}`
	end := messageEnd("end_turn", `{"output_tokens":9}`)
	counted := model.Usage{Input: 100, Output: 9}
	text := blockStart(0, `"type":"text","text":""`) + blockDelta(0, "text_delta", "text", "x")
	for name, tc := range map[string]struct {
		pieces []string
		want   model.Answer
	}{
		"the prompt is counted in the first event only": {
			[]string{messageStart(`{"input_tokens":4,"cache_creation_input_tokens":6,"cache_read_input_tokens":64,"output_tokens":1}`), text, end},
			model.Answer{Content: "x", Finish: "stop", Usage: model.Usage{Input: 10, CachedInput: 64, Output: 9}}},
		"the last event counts the prompt without its cache": {
			[]string{messageStart(`{"input_tokens":4,"cache_creation_input_tokens":6,"cache_read_input_tokens":64,"output_tokens":1}`), text, messageEnd("end_turn", `{"input_tokens":4,"output_tokens":9}`)},
			model.Answer{Content: "x", Finish: "stop", Usage: model.Usage{Input: 10, CachedInput: 64, Output: 9}}},
		"counts that make no sense": {
			[]string{messageStart(`{"input_tokens":-4,"output_tokens":1}`), text, messageEnd("end_turn", `{"output_tokens":-9,"output_tokens_details":{"thinking_tokens":5}}`)},
			model.Answer{Content: "x", Finish: "stop"}},
		"no counts, no end of the message": {
			[]string{text, event("message_delta", `"delta":{"stop_reason":"stop_sequence"}`)},
			model.Answer{Content: "x", Finish: "stop"}},
		"a full window cuts the answer": {
			[]string{messageStart(usage), text, messageEnd("model_context_window_exceeded", `{"output_tokens":9}`)},
			model.Answer{Content: "x", Finish: model.FinishLength, Usage: counted}},
		"a refusal is passed on": {
			[]string{messageStart(usage), messageEnd("refusal", `{"output_tokens":9}`)}, model.Answer{Finish: "refusal", Usage: counted}},
		"a call without arguments, and one that comes whole": {
			[]string{messageStart(usage), blockStart(0, `"type":"tool_use","id":"a","name":"x","input":{}`), blockStart(1, `"type":"tool_use","id":"a","name":"y","input":{ "k":1 }`), end},
			model.Answer{Finish: "stop", Usage: counted, ToolCalls: []model.ToolCall{{ID: "a", Name: "x", Arguments: "{}"}, {ID: "call_1", Name: "y", Arguments: `{ "k":1 }`}}}},
		"pings, events, blocks and deltas that nobody knows": {
			[]string{"event: ping\ndata: {\"type\": \"ping\"}\n\n", messageStart(usage), event("from_the_future", `"x":1`), blockStart(0, `"type":"hologram","text":"no"`),
				blockDelta(0, "text_delta", "text", "no"), blockDelta(7, "text_delta", "text", "no"), blockStart(-1, `"type":"text","text":"y"`), blockDelta(-1, "smell_delta", "text", "no"), end},
			model.Answer{Content: "y", Finish: "stop", Usage: counted}},
		"events without a name, with carriage returns": {
			[]string{strings.ReplaceAll(messageStart(usage), "event: message_start\n", ""), strings.ReplaceAll(text+end, "\n", "\r\n")},
			model.Answer{Content: "x", Finish: "stop", Usage: counted}},
		"thinking whose text is withheld": {
			[]string{messageStart(usage), blockStart(0, `"type":"thinking","thinking":"","signature":""`), blockDelta(0, "signature_delta", "signature", "sig"),
				blockStart(1, `"type":"text","text":""`), blockDelta(1, "text_delta", "text", "x"), end},
			model.Answer{Content: "x", Finish: "stop", Usage: counted, ReasoningState: json.RawMessage(`[{"type":"thinking","signature":"sig"},{"type":"text","bytes":1}]`)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Serve(t, modeltest.Pieces(tc.pieces...))
			for _, base := range []string{s.URL, s.URL + "/", s.URL + "/v1", s.URL + "/v1/"} {
				p := newAnthropic(t, model.Config{BaseURL: base})
				prepared, err := p.Prepare(modeltest.Request())
				if err != nil {
					t.Fatal(err)
				}
				o := modeltest.Collect(t.Context(), p, prepared)
				if diff := cmp.Diff(&tc.want, o.Answer); o.Err != nil || diff != "" {
					t.Errorf("Send() = %v, answer (-want +got):\n%s", o.Err, diff)
				}
			}
			for _, got := range s.Got() {
				if got.Path != "/v1/messages" || got.Header.Get("Anthropic-Version") != "2026-10-21" {
					t.Errorf("the request went to %s as version %q", got.Path, got.Header.Get("Anthropic-Version"))
				}
				for name := range got.Header {
					if strings.HasPrefix(name, "X-Stainless") || name == "Authorization" {
						t.Errorf("the header %s was sent", name)
					}
				}
			}
		})
	}
}

// An answer with signed thinking comes back as the blocks that came.
func TestThinkingRoundTrip(t *testing.T) {
	blocks := []string{
		`{"type":"thinking","thinking":"wörld \u2028","signature":"s1=="}`, `{"type":"text","text":"I <look>"}`, `{"type":"redacted_thinking","data":"opaque"}`,
		`{"type":"thinking","thinking":"","signature":"s2"}`, `{"type":"tool_use","id":"c1","name":"bash","input":{"a":1}}`, `{"type":"text","text":"more"}`,
	}
	s := modeltest.Serve(t, modeltest.Pieces(
		messageStart(`{"input_tokens":1,"output_tokens":1}`),
		blockStart(0, `"type":"thinking","thinking":"","signature":""`), blockDelta(0, "thinking_delta", "thinking", "wör"), blockDelta(0, "thinking_delta", "thinking", "ld \u2028"),
		blockDelta(0, "signature_delta", "signature", "s1"), blockDelta(0, "signature_delta", "signature", "=="),
		blockStart(1, `"type":"text","text":""`), blockDelta(1, "text_delta", "text", "I <look>"), blockStart(2, `"type":"redacted_thinking","data":"opaque"`),
		blockStart(3, `"type":"thinking","thinking":"","signature":"s2"`), blockStart(4, `"type":"tool_use","id":"c1","name":"bash","input":{}`),
		blockDelta(4, "input_json_delta", "partial_json", `{"a"`), blockDelta(4, "input_json_delta", "partial_json", `:1}`),
		blockStart(5, `"type":"text","text":"more"`), messageEnd("tool_use", `{"output_tokens":5}`)))
	p := newAnthropic(t, model.Config{BaseURL: s.URL})
	r := model.Request{Model: "m", Messages: []model.Message{{Role: model.User, Content: "go"}}}
	prepared, err := p.Prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	o := modeltest.Collect(t.Context(), p, prepared)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	r.Messages = append(r.Messages, model.Message{
		Role: model.Assistant, Content: o.Answer.Content, Reasoning: o.Answer.Reasoning, ReasoningState: o.Answer.ReasoningState, ToolCalls: o.Answer.ToolCalls,
	}, model.Message{Role: model.Tool, ToolCallID: "c1", Content: "ok"})
	if prepared, err = p.Prepare(r); err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	if !bytes.Contains(prepared.Body(), []byte(want)) {
		t.Errorf("body\n%s\nwant in it\n%s", prepared.Body(), want)
	}
	chat := newChat(t, model.Config{BaseURL: s.URL})
	if prepared, err = chat.Prepare(r); err != nil || bytes.Contains(prepared.Body(), []byte("opaque")) {
		t.Errorf("another provider sends the state along: %s, %v", prepared.Body(), err)
	}
}

// quoted is a text as bodies hold it.
func quoted(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(quote(s))
}

// Trouble that only this wire knows.
func TestBadMessageStreams(t *testing.T) {
	parts := func(n int, fields string) (pieces []string) {
		for i := range n {
			pieces = append(pieces, blockStart(i, fields))
		}
		return append(pieces, messageEnd("end_turn", "{}"))
	}
	failure := func(kind, message string) []string {
		return []string{event("error", `"error":{"type":%s,"message":%s}`, quote(kind), quote(message))}
	}
	for name, tc := range map[string]struct {
		pieces []string
		kind   model.Kind
		want   string
	}{
		"overloaded":                {failure("overloaded_error", "busy"), model.Server, "busy"},
		"rate limit":                {failure("rate_limit_error", "slow"), model.RateLimited, "slow"},
		"auth":                      {failure("authentication_error", "who"), model.Auth, "who"},
		"too long":                  {failure("invalid_request_error", "prompt is too long: 3 tokens"), model.ContextOverflow, "shortened"},
		"an unknown error":          {failure("new_error", "what"), model.Server, "what"},
		"1025 parts":                {parts(1025, `"type":"text","text":""`), model.TooLarge, "1024 parts"},
		"signatures of 9 MiB":       {parts(9, `"type":"thinking","thinking":"","signature":`+quote(strings.Repeat("s", 1<<20))), model.TooLarge, "8 MiB"},
		"input of 2 MiB at once":    {parts(1, `"type":"tool_use","id":"a","name":"x","input":{"a":`+quote(strings.Repeat("x", 2<<20))+`}`), model.TooLarge, "1 MiB of arguments"},
		"an event of another shape": {[]string{"data: [1,2]\n\n"}, model.Nonsense, "base URL"},
		"chat completions":          {[]string{"data: {\"choices\":[]}\n\n"}, model.Nonsense, "base URL"},
		"the end before the reason": {[]string{messageStart("{}"), event("message_stop", "")}, model.BrokenStream, "before the answer was complete"},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Serve(t, modeltest.Pieces(tc.pieces...))
			p := newAnthropic(t, model.Config{BaseURL: s.URL})
			prepared, err := p.Prepare(modeltest.Request())
			if err != nil {
				t.Fatal(err)
			}
			if e := modeltest.WantError(t, modeltest.Collect(t.Context(), p, prepared), tc.kind); !strings.Contains(e.Error(), tc.want) {
				t.Errorf("error %q, want %q in it", e, tc.want)
			}
		})
	}
}
