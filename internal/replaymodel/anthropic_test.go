// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/google/go-cmp/cmp"
)

func messagesClient(t *testing.T, h http.Handler, key string) sdk.Client {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return sdk.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func messageParams(blocks ...sdk.ContentBlockParamUnion) sdk.MessageNewParams {
	return sdk.MessageNewParams{
		Model: "replay", MaxTokens: 1000,
		System:   []sdk.TextBlockParam{{Text: "be brief"}},
		Messages: []sdk.MessageParam{sdk.NewUserMessage(blocks...)},
	}
}

// heardMessage reads a streamed reply with the official client; events are the names as they came.
func heardMessage(t *testing.T, c sdk.Client, p sdk.MessageNewParams) (m sdk.Message, events []string) {
	t.Helper()
	stream := c.Messages.NewStreaming(t.Context(), p)
	defer stream.Close()
	for stream.Next() {
		e := stream.Current()
		if err := m.Accumulate(e); err != nil {
			t.Fatalf("event %d does not fit those before: %v", len(events), err)
		}
		if n := len(events); n == 0 || events[n-1] != e.Type {
			events = append(events, e.Type)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return m, events
}

// The official client of the messages format reads reasoning, text, tool calls
// and usage from a stream and gets the same in one piece.
func TestMessagesClient(t *testing.T) {
	s := New(mustScript(t, `
version: 1
models: [replay]
rules:
- when: {lastUser: hello}
  reply:
    reasoning: They greet me, so I greet back and call.
    text: "Grüße aus dem Skript — twice: Grüße aus dem Skript."
    toolCalls:
    - {name: bash, arguments: {command: "printf '%s' \"ü\" > out && cat out", timeout: 5}}
    - {name: read}
`))
	c := messagesClient(t, s, "any")
	params := messageParams(sdk.NewTextBlock("hello"))
	streamed, events := heardMessage(t, c, params)
	whole, err := c.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	block := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	want := append([]string{"message_start"}, append(append(append(append(block, block...), block...), block...), "message_delta", "message_stop")...)
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for name, m := range map[string]sdk.Message{"streamed": streamed, "whole": *whole} {
		if len(m.Content) != 4 || m.StopReason != "tool_use" {
			t.Fatalf("%s: stop %q, content %+v", name, m.StopReason, m.Content)
		}
		thinking, text, bash, read := m.Content[0], m.Content[1], m.Content[2], m.Content[3]
		if thinking.Type != "thinking" || thinking.Thinking != "They greet me, so I greet back and call." || thinking.Signature == "" {
			t.Errorf("%s: thinking %+v", name, thinking)
		}
		if text.Text != "Grüße aus dem Skript — twice: Grüße aus dem Skript." {
			t.Errorf("%s: text %q", name, text.Text)
		}
		if bash.Name != "bash" || string(bash.Input) != `{"command":"printf '%s' \"ü\" > out && cat out","timeout":5}` || string(read.Input) != "{}" {
			t.Errorf("%s: calls %s and %s", name, bash.Input, read.Input)
		}
		if bash.ID == read.ID || m.Usage.InputTokens == 0 || m.Usage.OutputTokens < 20 {
			t.Errorf("%s: ids %s, %s, usage %+v", name, bash.ID, read.ID, m.Usage)
		}
	}
	again, _ := heardMessage(t, c, params)
	if again.ID != streamed.ID || again.Content[2].ID != streamed.Content[2].ID || again.Content[0].Signature != streamed.Content[0].Signature {
		t.Error("the same request got other ids")
	}
}

// Broken arguments arrive as they stand in the stream, and as a text where they
// cannot come in pieces.
func TestMessagesBrokenArguments(t *testing.T) {
	s := New(mustScript(t, `{version: 1, rules: [{when: {}, reply: {toolCalls: [{name: read, rawArguments: '{"path":'}]}}]}`))
	_, answer := postMessages(t, s, messagesBody(`"stream":true,`, `{"role":"user","content":"go"}`))
	if !strings.Contains(answer, `"partial_json":"{\"path\":"`) {
		t.Errorf("no broken piece in %s", answer)
	}
	if _, answer = postMessages(t, s, messagesBody("", `{"role":"user","content":"go"}`)); !strings.Contains(answer, `"input":"{\"path\":"`) {
		t.Errorf("no broken input in %s", answer)
	}
}

// Errors have the provider's shape and say what to do; x-api-key and a bearer token are both keys.
func TestMessagesErrors(t *testing.T) {
	s := New(mustScript(t, "version: 1\nmodels: [m]\nrules: [{when: {lastUser: write}, reply: {text: ok}}]"), WithAPIKey("secret"))
	user := `{"role":"user","content":"write"}`
	for name, tc := range map[string]struct {
		header map[string]string
		body   string
		status int
		kind   string
		want   string
	}{
		"the right key":     {map[string]string{"X-Api-Key": "secret"}, messagesBody("", user), 200, "", "ok"},
		"as a bearer token": {map[string]string{"X-Api-Key": "", "Authorization": "Bearer secret"}, messagesBody("", user), 200, "", "ok"},
		"a wrong key":       {map[string]string{"X-Api-Key": "guess"}, messagesBody("", user), 401, "authentication_error", "the API key is wrong"},
		"no key":            {map[string]string{"X-Api-Key": ""}, messagesBody("", user), 401, "authentication_error", "send it as: x-api-key: KEY"},
		"no version":        {map[string]string{"Anthropic-Version": ""}, messagesBody("", user), 400, "invalid_request_error", "anthropic-version is missing"},
		"another model":     {nil, strings.Replace(messagesBody("", user), `"m"`, `"n"`, 1), 404, "not_found_error", `there is no model \"n\"`},
		"no rule":           {nil, messagesBody("", `{"role":"user","content":"hello"}`), 400, "invalid_request_error", "no rule of the script matches"},
	} {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{"X-Api-Key": "secret"}
			maps.Copy(header, tc.header)
			status, answer := postWith(t, s, "/v1/messages", tc.body, header)
			if status != tc.status || !strings.Contains(answer, tc.want) || strings.Contains(answer, "secret") {
				t.Errorf("status %d: %s, want %d and %q", status, answer, tc.status, tc.want)
			}
			if shape := `{"error":{"message":`; tc.kind != "" && (!strings.HasPrefix(answer, shape) || !strings.Contains(answer, `"type":"`+tc.kind+`"},"type":"error"}`)) {
				t.Errorf("not the shape of an error of type %s: %s", tc.kind, answer)
			}
		})
	}
}

// What the provider would refuse is refused, with the place.
func TestMessagesRefused(t *testing.T) {
	user, call := `{"role":"user","content":"go"}`, `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"a","name":"x","input":{}},{"type":"tool_use","id":"b","name":"x","input":{}}]}`
	result := func(ids ...string) string {
		var blocks []string
		for _, id := range ids {
			blocks = append(blocks, `{"type":"tool_result","tool_use_id":"`+id+`","content":"r"}`)
		}
		return strings.Join(blocks, ",")
	}
	turn := func(role, blocks string) string { return `{"role":"` + role + `","content":[` + blocks + `]}` }
	s := New(mustScript(t, sayOK))
	for name, tc := range map[string]struct{ body, want string }{
		"in order":                         {messagesBody("", user, call, turn("user", result("b", "a"))), ""},
		"results in neighbouring messages": {messagesBody("", user, call, turn("user", result("a")), turn("user", result("b")), user), ""},
		"no max_tokens":                    {strings.Replace(messagesBody("", user), `"max_tokens":100,`, "", 1), "max_tokens is missing"},
		"an empty list":                    {messagesBody(""), "messages is missing or empty"},
		"no list":                          {`{"model":"m","max_tokens":1,"messages":7}`, "messages must be a list"},
		"another role":                     {messagesBody("", `{"role":"tool","content":"x"}`), `messages[0]: role is "tool"; use user or assistant`},
		"an assistant first":               {messagesBody("", `{"role":"assistant","content":"x"}`), "the first message must be from user"},
		"an empty text":                    {messagesBody("", turn("user", `{"type":"text","text":""}`)), "messages[0].content[0]: the text is empty"},
		"no content":                       {messagesBody("", `{"role":"user"}`), "messages[0]: content is missing or empty"},
		"a content of a wrong type":        {messagesBody("", `{"role":"user","content":{}}`), "content must be a text or a list of blocks"},
		"a call without a result":          {messagesBody("", user, call, turn("user", result("a"))), `tool call "b" has no result`},
		"a text before a result":           {messagesBody("", user, call, turn("user", result("a")+`,{"type":"text","text":"x"},`+result("b"))), `messages[2].content[1] (user) stands before the result of tool call "b"`},
		"a result without a call":          {messagesBody("", user, turn("user", result("z"))), `messages[1].content[0] answers tool call "z"`},
		"a call from user":                 {messagesBody("", turn("user", `{"type":"tool_use","id":"a","name":"x","input":{}}`)), "can only come from assistant"},
		"a result from assistant":          {messagesBody("", user, turn("assistant", result("a"))), "can only come from user"},
		"an input that is a text":          {messagesBody("", user, turn("assistant", `{"type":"tool_use","id":"a","name":"x","input":"{}"}`)), "input, which is an object"},
		"thinking without its signature":   {messagesBody("", user, turn("assistant", `{"type":"thinking","thinking":"x"}`), user), "needs the signature"},
		"too many breakpoints":             {messagesBody("", turn("user", strings.Repeat(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},`, 5)+`{"type":"text","text":"y"}`)), "5 blocks have cache_control; at most 4 may"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := postMessages(t, s, tc.body)
			if tc.want == "" {
				if status != 200 {
					t.Errorf("status %d: %s", status, answer)
				}
				return
			}
			if unquoted := strings.ReplaceAll(answer, `\"`, `"`); status != 400 || !strings.Contains(unquoted, tc.want) {
				t.Errorf("status %d: %s, want 400 and %q", status, answer, tc.want)
			}
		})
	}
}

// One script serves both formats: the same conversation chooses the same rule.
func TestRulesHoldInBothFormats(t *testing.T) {
	script := mustScript(t, `
version: 1
rules:
- {name: denied, when: {lastUser: write, lastRole: tool, toolResults: 1, toolResult: denied}, require: {snapshot: {mustContain: [workspace-write]}}, reply: {text: x}}
- {name: start, when: {lastUser: write, lastRole: user, toolResults: 0}, reply: {text: x}}
`)
	use := `{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"bash","input":{}}]}`
	for name, tc := range map[string]struct{ chat, messages, want string }{
		"a snapshot behind the user": {
			chatBody(askWrite, readOnly),
			messagesBody("", `{"role":"user","content":[{"type":"text","text":"please write"},{"type":"text","text":"<context-snapshot>\nread-only"}]}`),
			"start",
		},
		"a snapshot behind a result": {
			chatBody(askWrite, readOnly, callOne, resultOne, writable),
			messagesBody("", `{"role":"user","content":"please write"}`, use,
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"permission denied"}]},{"type":"text","text":"<context-snapshot>\nworkspace-write"}]}`),
			"denied",
		},
		"an image beside a text": {
			chatBody(`{"role":"user","content":[{"type":"text","text":"write"},{"type":"image_url","image_url":{}}]}`),
			messagesBody("", `{"role":"user","content":[{"type":"text","text":"write"},{"type":"image","source":{}}]}`),
			"start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(script)
			post(t, s, tc.chat)
			postMessages(t, s, tc.messages)
			for _, r := range s.Requests() {
				if r.Status != 200 || !strings.Contains(r.Rule, tc.want) {
					t.Errorf("%s: %+v, want rule %s", r.Format, r, tc.want)
				}
			}
		})
	}
}
