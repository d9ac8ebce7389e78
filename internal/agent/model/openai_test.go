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
	"go.uber.org/goleak"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newChat(t *testing.T, c model.OpenAIConfig) *model.OpenAIChat {
	t.Helper()
	p, err := model.NewOpenAIChat(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// sse is one event of a stream, hand-written.
func sse(format string, args ...any) string { return "data: " + fmt.Sprintf(format, args...) + "\n\n" }

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func delta(fields string) string {
	return sse(`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{%s},"finish_reason":null}]}`, fields)
}

func finish(reason, usage string) string {
	return sse(`{"choices":[{"index":0,"delta":{},"finish_reason":%s}]}`, quote(reason)) +
		sse(`{"choices":[],"usage":%s}`, usage) + "data: [DONE]\n\n"
}

// halves splits a string where it hurts: between bytes of its JSON, not of its letters.
func halves(s string) [2]string {
	r := []rune(s)
	return [2]string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}

func stream(a model.Answer) []string {
	pieces := []string{delta(`"role":"assistant","content":""`)}
	for _, half := range halves(a.Reasoning) {
		pieces = append(pieces, delta(`"reasoning_content":`+quote(half)))
	}
	for _, half := range halves(a.Content) {
		pieces = append(pieces, delta(`"content":`+quote(half)))
	}
	for i, c := range a.ToolCalls {
		half := halves(c.Arguments)
		pieces = append(pieces,
			delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]`, i, quote(c.ID), quote(c.Name))),
			delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i, quote(half[0]))),
			delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i, quote(half[1]))))
	}
	u := a.Usage
	return append(pieces, finish(string(a.Finish), fmt.Sprintf(
		`{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		u.Input+u.CachedInput, u.Output, u.CachedInput, u.Reasoning)))
}

func TestOpenAIChatContract(t *testing.T) {
	modeltest.Test(t, modeltest.Wire{
		New: func(t *testing.T, c modeltest.Config) model.Provider {
			return newChat(t, model.OpenAIConfig{BaseURL: c.BaseURL, KeyFile: c.KeyFile, IdleTimeout: c.IdleTimeout})
		},
		Stream: stream,
		Text:   func(s string) string { return delta(`"content":` + quote(s)) },
		Call: func(id string, arguments ...string) []string {
			pieces := []string{delta(fmt.Sprintf(`"tool_calls":[{"index":0,"id":%s,"function":{"name":"bash","arguments":""}}]`, quote(id)))}
			for _, a := range arguments {
				pieces = append(pieces, delta(fmt.Sprintf(`"tool_calls":[{"index":0,"function":{"arguments":%s}}]`, quote(a))))
			}
			return pieces
		},
		Signed: func(reasoning string) ([]string, string) { // this protocol has nothing for it
			return stream(model.Answer{Reasoning: reasoning, Finish: model.FinishToolCalls, ToolCalls: []model.ToolCall{{ID: "c1", Name: "bash", Arguments: "{}"}}}), ""
		},
		Failure: func(message string) string { return sse(`{"error":{"message":%s}}`, quote(message)) },
		Key:     func(h http.Header) string { return strings.TrimPrefix(h.Get("Authorization"), "Bearer ") },
		Split: func(body []byte) ([]byte, []json.RawMessage, error) {
			var all struct {
				Messages []json.RawMessage `json:"messages"`
			}
			head, _, _ := bytes.Cut(body, []byte(`"messages":`))
			return head, all.Messages, json.Unmarshal(body, &all)
		},
	})
}

// The bytes, as they are. A change here breaks every running session's cache and
// the rebuilding of requests from older logs.
func TestBodyBytes(t *testing.T) {
	p := newChat(t, model.OpenAIConfig{BaseURL: "http://127.0.0.1:1/v1"})
	const head = `{"model":"test-model","max_tokens":4096,"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true},"tool_choice":"auto",` +
		`"tools":[{"type":"function","function":{"name":"read","description":"Reads a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},` +
		`{"type":"function","function":{"name":"bash","description":"Runs a command.","parameters":{"type":"object","properties":{"z":{},"a":{}}}}}],` +
		`"messages":[{"role":"system","content":"You are <a> test & more."},{"role":"user","content":"read \u2028 both <files>"},`
	const tail = `"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},` +
		`{"id":"c2","type":"function","function":{"name":"read","arguments":"{\"path\": broken"}}]},` +
		`{"role":"tool","content":"A","tool_call_id":"c1"},{"role":"tool","content":"","tool_call_id":"c2"}]}`
	r := modeltest.Request()
	for name, tc := range map[string]struct {
		change func()
		want   string
	}{
		"reasoning stays in the log": {func() {}, head + `{"role":"assistant","content":null,` + tail},
		"reasoning goes back where it is wanted": {func() { r.Parameters.ReturnReasoning = true },
			head + `{"role":"assistant","content":null,"reasoning_content":"two calls",` + tail},
		"the other name of the token limit": {func() { r.Parameters.MaxTokensField = "max_completion_tokens" },
			strings.Replace(head, "max_tokens", "max_completion_tokens", 1) + `{"role":"assistant","content":null,` + tail},
		"nothing that is not set": {func() { r = model.Request{Model: "m", Messages: []model.Message{{Role: model.User, Content: "hi"}}} },
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`},
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
	r = modeltest.Request()
	r.Parameters.MaxTokensField = "n_predict"
	if _, err := p.Prepare(r); err == nil {
		t.Error("an unknown token limit field was accepted")
	}
}

// What endpoints that are not OpenAI's do differently.
func TestDialects(t *testing.T) {
	call := func(index int, id, name, args string) string {
		return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%s,"function":{"name":%s,"arguments":%s}}]`, index, quote(id), quote(name), quote(args)))
	}
	const usage = `{"prompt_tokens":100,"completion_tokens":9}`
	counted := model.Usage{Input: 100, Output: 9}
	for name, tc := range map[string]struct {
		pieces []string
		want   model.Answer
	}{
		"cached tokens in DeepSeek's spelling": {
			[]string{finish("stop", `{"prompt_tokens":100,"completion_tokens":9,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}`)},
			model.Answer{Finish: "stop", Usage: model.Usage{Input: 36, CachedInput: 64, Output: 9}}},
		"both spellings count once": {
			[]string{finish("stop", `{"prompt_tokens":100,"completion_tokens":9,"prompt_cache_hit_tokens":64,"prompt_tokens_details":{"cached_tokens":64}}`)},
			model.Answer{Finish: "stop", Usage: model.Usage{Input: 36, CachedInput: 64, Output: 9}}},
		"more cached than sent": {
			[]string{finish("stop", `{"prompt_tokens":10,"completion_tokens":-3,"prompt_tokens_details":{"cached_tokens":64}}`)},
			model.Answer{Finish: "stop", Usage: model.Usage{CachedInput: 10}}},
		"no usage, no [DONE]": {
			[]string{delta(`"content":"x"`), sse(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)},
			model.Answer{Content: "x", Finish: "stop"}},
		"usage with the last choice": {
			[]string{sse(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":%s}`, usage)},
			model.Answer{Content: "x", Finish: "stop", Usage: counted}},
		"reasoning by its other name": {
			[]string{delta(`"reasoning":"hm"`), finish("stop", usage)},
			model.Answer{Reasoning: "hm", Finish: "stop", Usage: counted}},
		"null everywhere": {
			[]string{delta(`"content":null,"reasoning_content":null,"tool_calls":null`), finish("stop", usage)},
			model.Answer{Finish: "stop", Usage: counted}},
		"an unknown finish reason is passed on": {
			[]string{finish("insufficient_system_resource", usage)},
			model.Answer{Finish: "insufficient_system_resource", Usage: counted}},
		"a refusal is what the model says": {
			[]string{delta(`"refusal":"no"`), finish("content_filter", usage)},
			model.Answer{Content: "no", Finish: "content_filter", Usage: counted}},
		"all calls numbered 0": {
			[]string{call(0, "a", "read", "{}"), call(0, "b", "bash", "{"), call(0, "b", "bash", "}"), finish("tool_calls", usage)},
			model.Answer{Finish: "tool_calls", Usage: counted, ToolCalls: []model.ToolCall{{ID: "a", Name: "read", Arguments: "{}"}, {ID: "b", Name: "bash", Arguments: "{}"}}}},
		"calls without an ID, and one ID twice": {
			[]string{call(0, "", "a", ""), call(1, "", "b", ""), call(2, "call_1", "c", ""), call(3, "call_1", "d", ""), finish("stop", usage)},
			model.Answer{Finish: "stop", Usage: counted, ToolCalls: []model.ToolCall{
				{ID: "call_0", Name: "a"}, {ID: "call_1", Name: "b"}, {ID: "call_2", Name: "c"}, {ID: "call_3", Name: "d"}}}},
		"huge and negative indexes": {
			[]string{call(1<<40, "a", "x", "1"), call(-7, "b", "y", "2"), finish("tool_calls", usage)},
			model.Answer{Finish: "tool_calls", Usage: counted, ToolCalls: []model.ToolCall{{ID: "a", Name: "x", Arguments: "1"}, {ID: "b", Name: "y", Arguments: "2"}}}},
		"other choices are not mixed in": {
			[]string{sse(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`), delta(`"content":"yes"`), finish("stop", usage)},
			model.Answer{Content: "yes", Finish: "stop", Usage: counted}},
		"bytes that are not UTF-8": {
			[]string{delta("\"content\":\"a\xffb\""), call(0, "i", "n", "x"), finish("stop", usage)},
			model.Answer{Content: "a\uFFFDb", Finish: "stop", Usage: counted, ToolCalls: []model.ToolCall{{ID: "i", Name: "n", Arguments: "x"}}}},
		"comments, events and carriage returns": {
			[]string{": hello\r\n\r\n", "event: message\r\n" + strings.ReplaceAll(delta(`"content":"x"`), "\n", "\r\n"), finish("stop", usage)},
			model.Answer{Content: "x", Finish: "stop", Usage: counted}},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Serve(t, modeltest.Pieces(tc.pieces...))
			p := newChat(t, model.OpenAIConfig{BaseURL: s.URL + "/v1/"})
			prepared, err := p.Prepare(modeltest.Request())
			if err != nil {
				t.Fatal(err)
			}
			o := modeltest.Collect(t.Context(), p, prepared)
			if diff := cmp.Diff(&tc.want, o.Answer); o.Err != nil || diff != "" {
				t.Errorf("Send() = %v, answer (-want +got):\n%s", o.Err, diff)
			}
			if s.Got()[0].Path != "/v1/chat/completions" {
				t.Errorf("the request went to %s", s.Got()[0].Path)
			}
			for name := range s.Got()[0].Header {
				if strings.HasPrefix(name, "X-Stainless") {
					t.Errorf("the header %s tells about this machine", name)
				}
			}
		})
	}
}

// Trouble inside the stream, and answers beyond the bounds.
func TestBadStreams(t *testing.T) {
	calls := func(n int, args string) (pieces []string) {
		for i := range n {
			pieces = append(pieces, delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"x","arguments":%s}}]`, i, i, quote(args))))
		}
		return append(pieces, finish("tool_calls", "{}"))
	}
	for name, tc := range map[string]struct {
		pieces []string
		kind   model.Kind
		want   string
	}{
		"an error as a chunk":            {[]string{sse(`{"error":{"message":"engine died"}}`)}, model.Server, "engine died"},
		"a rate limit as a chunk":        {[]string{sse(`{"error":{"message":"slow","code":429}}`)}, model.RateLimited, "slow"},
		"129 calls":                      {calls(129, "{}"), model.TooLarge, "128 tools"},
		"arguments of 2 MiB":             {calls(1, strings.Repeat("x", 2<<20)), model.TooLarge, "1 MiB of arguments"},
		"a name of 300 bytes":            {[]string{delta(`"tool_calls":[{"index":0,"function":{"name":"` + strings.Repeat("n", 300) + `"}}]`)}, model.TooLarge, "256 bytes"},
		"a chunk of 5 MiB in many lines": {[]string{strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 5000) + "\n"}, model.TooLarge, "more than 4 MiB"},
		"a chunk of the wrong shape":     {[]string{sse(`[1,2]`)}, model.Nonsense, "base URL"},
		"[DONE] before the finish":       {[]string{delta(`"content":"x"`), "data: [DONE]\n\n"}, model.BrokenStream, "before the answer was complete"},
		"a last chunk without newlines":  {[]string{strings.TrimSpace(sse(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))}, model.BrokenStream, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Serve(t, modeltest.Pieces(tc.pieces...))
			p := newChat(t, model.OpenAIConfig{BaseURL: s.URL})
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
