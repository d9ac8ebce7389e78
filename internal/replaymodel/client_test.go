// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const conversation = `
version: 1
models: [replay]
rules:
- name: greet
  when: {lastUser: hello}
  reply:
    reasoning: They greet me, so I greet back.
    text: "Grüße aus dem Skript — twice: Grüße aus dem Skript."
- name: work
  when: {lastUser: work}
  reply:
    text: I call two tools.
    toolCalls:
    - {name: bash, arguments: {command: "printf '%s' \"ü\" > out && cat out", timeout: 5}}
    - {name: read, rawArguments: '{"path":'}
- name: cut
  when: {lastUser: long}
  reply: {text: This was cu, finish: length}
`

func client(t *testing.T, h http.Handler, key string) openai.Client {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func params(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:         "replay",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be brief"), openai.UserMessage(text)},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
}

// streamed reads a streamed reply with the official client.
func streamed(t *testing.T, c openai.Client, text string) (acc openai.ChatCompletionAccumulator, reasoning string, chunks int) {
	t.Helper()
	stream := c.Chat.Completions.NewStreaming(t.Context(), params(text))
	defer stream.Close()
	for stream.Next() {
		chunk := stream.Current()
		chunks++
		if !acc.AddChunk(chunk) {
			t.Fatalf("chunk %d does not fit those before: %s", chunks, chunk.RawJSON())
		}
		for _, choice := range chunk.Choices {
			if f, ok := choice.Delta.JSON.ExtraFields["reasoning_content"]; ok {
				reasoning += strings.Trim(f.Raw(), `"`)
			}
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return acc, reasoning, chunks
}

// The official client reads a stream: text in pieces, reasoning, usage.
func TestOfficialClientStreamsText(t *testing.T) {
	acc, reasoning, chunks := streamed(t, client(t, New(mustScript(t, conversation)), "any"), "hello")
	const want = "Grüße aus dem Skript — twice: Grüße aus dem Skript."
	if got := acc.Choices[0].Message.Content; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if reasoning != "They greet me, so I greet back." {
		t.Errorf("reasoning %q", reasoning)
	}
	if acc.Choices[0].FinishReason != "stop" || chunks < 8 {
		t.Errorf("finish %q after %d chunks, want stop after several", acc.Choices[0].FinishReason, chunks)
	}
	wantOut := int64(tokens(len(want)) + tokens(len(reasoning)))
	if acc.Usage.CompletionTokens != wantOut || acc.Usage.PromptTokens == 0 || acc.Usage.TotalTokens != wantOut+acc.Usage.PromptTokens {
		t.Errorf("usage %+v, want %d output tokens", acc.Usage, wantOut)
	}
}

// The official client reads tool calls, broken arguments included, and a
// repeated request is answered with the same ids.
func TestOfficialClientStreamsToolCalls(t *testing.T) {
	s := New(mustScript(t, conversation))
	c := client(t, s, "any")
	first, _, _ := streamed(t, c, "work")
	again, _, _ := streamed(t, c, "work")
	calls, repeated := first.Choices[0].Message.ToolCalls, again.Choices[0].Message.ToolCalls
	if len(calls) != 2 || len(repeated) != 2 || first.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("finish %q, calls %+v", first.Choices[0].FinishReason, calls)
	}
	want := []struct{ name, arguments string }{
		{"bash", `{"command":"printf '%s' \"ü\" > out && cat out","timeout":5}`},
		{"read", `{"path":`},
	}
	for i, w := range want {
		if calls[i].Function.Name != w.name || calls[i].Function.Arguments != w.arguments {
			t.Errorf("call %d: %+v, want %+v", i, calls[i].Function, w)
		}
		if calls[i].ID == "" || calls[i].ID != repeated[i].ID {
			t.Errorf("call %d: ids %q and %q, want the same", i, calls[i].ID, repeated[i].ID)
		}
	}
	if calls[0].ID == calls[1].ID || first.ID != again.ID {
		t.Error("ids: the two calls must differ, the two replies must not")
	}
	if other, _, _ := streamed(t, c, "other work"); other.Choices[0].Message.ToolCalls[0].ID == calls[0].ID {
		t.Error("another request got the same call id")
	}
}

// The usage of the second, longer request counts whole cached blocks in both spellings.
func TestOfficialClientSeesCachedTokens(t *testing.T) {
	s := New(mustScript(t, conversation))
	c := client(t, s, "any")
	long := strings.Repeat("hello ", 200)
	streamed(t, c, long)
	acc, _, _ := streamed(t, c, long)
	rec := s.Requests()[1]
	wantCached := int64(rec.PromptBytes / 256 * 64)
	if wantCached < 256 || acc.Usage.PromptTokensDetails.CachedTokens != wantCached {
		t.Errorf("cached %d, want %d", acc.Usage.PromptTokensDetails.CachedTokens, wantCached)
	}
	_, answer := post(t, s, chatBodyFor("replay", "hello"))
	for _, name := range []string{"prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "cached_tokens"} {
		if !strings.Contains(answer, `"`+name+`"`) {
			t.Errorf("usage has no %s: %s", name, answer)
		}
	}
}

func chatBodyFor(model, text string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"` + text + `"}]}`
}

// Without stream the same reply comes whole.
func TestOfficialClientWithoutStream(t *testing.T) {
	p := params("work")
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	c := client(t, New(mustScript(t, conversation)), "any")
	got, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Choices[0].Message
	if m.Content != "I call two tools." || len(m.ToolCalls) != 2 || m.ToolCalls[1].Function.Arguments != `{"path":` || got.Usage.PromptTokens == 0 {
		t.Errorf("message %+v, usage %+v", m, got.Usage)
	}
	long, _, _ := streamed(t, c, "long")
	if long.Choices[0].FinishReason != "length" {
		t.Errorf("finish %q, want length", long.Choices[0].FinishReason)
	}
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "replay" {
		t.Errorf("models %+v, %v", models, err)
	}
}

// A wrong or missing key is a 401 that says what to send; health needs none.
func TestAPIKey(t *testing.T) {
	s := New(mustScript(t, conversation), WithAPIKey("secret"))
	c := client(t, s, "wrong")
	_, err := c.Chat.Completions.New(t.Context(), params("hello"))
	apiErr, ok := errors.AsType[*openai.Error](err)
	if !ok || apiErr.StatusCode != http.StatusUnauthorized || !strings.Contains(apiErr.Message, "the API key is wrong") {
		t.Fatalf("error %v", err)
	}
	if strings.Contains(err.Error(), "secret") || len(s.Requests()) != 0 {
		t.Error("the key leaks, or the request was accepted")
	}
	if status, answer := post(t, s, chatBodyFor("replay", "hello")); status != 401 || !strings.Contains(answer, "the API key is missing") {
		t.Errorf("status %d: %s", status, answer)
	}
	if acc, _, _ := streamed(t, client(t, s, "secret"), "hello"); acc.Choices[0].Message.Content == "" {
		t.Error("the right key gets no answer")
	}
	server := httptest.NewServer(s)
	defer server.Close()
	resp, err := http.Get(server.URL + "/healthz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("health: %v, %v", resp, err)
	}
}

// A base URL without /v1 is the likeliest mistake: the answer names the right paths.
func TestWrongPathsAndSizes(t *testing.T) {
	server := httptest.NewServer(New(mustScript(t, sayOK)))
	defer server.Close()
	resp, err := http.Post(server.URL+"/chat/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 404 || !strings.Contains(string(answer), "the base URL of this server ends in /v1") {
		t.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	huge := io.MultiReader(strings.NewReader(`{"model":"`), io.LimitReader(endless{}, MaxBody), strings.NewReader(`"}`))
	recorder := httptest.NewRecorder()
	New(mustScript(t, sayOK)).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", huge))
	if recorder.Code != http.StatusRequestEntityTooLarge || !strings.Contains(recorder.Body.String(), "shorten the conversation") {
		t.Errorf("status %d: %s", recorder.Code, recorder.Body)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
