// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
)

// upstream is what is recorded: it stumbles, reasons, calls two tools, ends.
const upstream = `
version: 1
rules:
- name: end
  when: {toolResults: 2}
  reply: {id: real-2, text: "Both are done: ü <&>."}
- name: work
  when: {lastUser: work}
  faults:
  - {kind: status, status: 429, retryAfter: 0, times: 2}
  - {kind: status, status: 529, message: overloaded}
  reply:
    id: real-1
    reasoning: I need two tools.
    signature: signed
    text: I call two tools.
    toolCalls:
    - {id: call-1, name: bash, arguments: {command: "echo \"ü\"", timeout: 5}}
    - {id: call-2, name: read, arguments: {path: a}}
- {when: {lastUser: more}, reply: {text: cut of, finish: length}}
`

func recorderOf(t *testing.T, upstream http.Handler, to string, key func() (string, error)) *Server {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	r, err := NewRecorder(server.URL+"/v1", to, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return New(nil, WithRecorder(r))
}

// talk holds a conversation as a client that retries does; it returns all that it
// was told.
type talk func(t *testing.T, s *Server, stream bool) []string

// chatTalk sends back what it got, as the official client's own types have it.
func chatTalk(t *testing.T, s *Server, stream bool) (said []string) {
	c := client(t, s, "client-secret")
	p := params("work")
	if !stream {
		p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	}
	ask := func() *openai.ChatCompletionMessage {
		var acc openai.ChatCompletionAccumulator
		for attempt := 1; ; attempt++ {
			var err error
			if stream {
				acc = openai.ChatCompletionAccumulator{}
				events := c.Chat.Completions.NewStreaming(t.Context(), p)
				for events.Next() {
					acc.AddChunk(events.Current())
				}
				err = events.Err()
				events.Close()
			} else {
				var whole *openai.ChatCompletion
				if whole, err = c.Chat.Completions.New(t.Context(), p); err == nil {
					acc.ChatCompletion = *whole
				}
			}
			if err == nil {
				break
			}
			if said = append(said, withoutAddress(err)); attempt == 5 {
				t.Fatalf("no answer: %v\n%s", err, strings.Join(said, "\n"))
			}
		}
		m := acc.Choices[0].Message
		said = append(said, fmt.Sprint(acc.ID, acc.Choices[0].FinishReason, m.Content))
		for _, call := range m.ToolCalls {
			said = append(said, call.ID, call.Function.Name, call.Function.Arguments)
		}
		return &m
	}
	m := ask()
	p.Messages = append(p.Messages, m.ToParam())
	for _, call := range m.ToolCalls {
		p.Messages = append(p.Messages, openai.ToolMessage("done", call.ID))
	}
	p.Messages = append(p.Messages, ask().ToParam(), openai.UserMessage("more"))
	ask()
	return said
}

func messagesTalk(t *testing.T, s *Server, stream bool) (said []string) {
	c := messagesClient(t, s, "client-secret")
	p := messageParams(sdk.NewTextBlock("work"))
	ask := func() *sdk.Message {
		var m sdk.Message
		for attempt := 1; ; attempt++ {
			var err error
			if stream {
				m = sdk.Message{}
				events := c.Messages.NewStreaming(t.Context(), p)
				for events.Next() {
					if err := m.Accumulate(events.Current()); err != nil {
						t.Fatal(err)
					}
				}
				err = events.Err()
				events.Close()
			} else {
				var whole *sdk.Message
				if whole, err = c.Messages.New(t.Context(), p); err == nil {
					m = *whole
				}
			}
			if err == nil {
				break
			}
			if said = append(said, withoutAddress(err)); attempt == 5 {
				t.Fatalf("no answer: %v\n%s", err, strings.Join(said, "\n"))
			}
		}
		said = append(said, fmt.Sprint(m.ID, m.StopReason))
		for _, b := range m.Content {
			said = append(said, b.Type, b.Thinking, b.Signature, b.Text, b.ID, b.Name, string(b.Input))
		}
		return &m
	}
	m := ask()
	var results []sdk.ContentBlockParamUnion
	for _, b := range m.Content {
		if b.Type == "tool_use" {
			results = append(results, sdk.NewToolResultBlock(b.ID, "done", false))
		}
	}
	p.Messages = append(p.Messages, m.ToParam(), sdk.NewUserMessage(results...))
	p.Messages = append(p.Messages, ask().ToParam(), sdk.NewUserMessage(sdk.NewTextBlock("more")))
	ask()
	return said
}

// withoutAddress is an error without the port that differs from server to server.
func withoutAddress(err error) string {
	_, text, _ := strings.Cut(err.Error(), ": ")
	return text
}

// What was recorded plays again word for word, the retries included, through
// every turn of a conversation that sends ids and signatures back. The keys of
// client and endpoint are not in it.
func TestRecordingRoundTrip(t *testing.T) {
	for format, hold := range map[string]talk{"openai": chatTalk, "anthropic": messagesTalk} {
		for how, stream := range map[string]bool{"streamed": true, "whole": false} {
			t.Run(format+" "+how, func(t *testing.T) {
				to := filepath.Join(t.TempDir(), "recorded.yaml")
				real := New(mustScript(t, upstream), WithAPIKey("client-secret"))
				recorder := recorderOf(t, real, to, nil)
				recorded := hold(t, recorder, stream)
				if len(real.Requests()) != 6 || len(recorder.Requests()) != 6 {
					t.Fatalf("%d requests upstream, %d in the recorder's account, want 6", len(real.Requests()), len(recorder.Requests()))
				}
				if all := strings.Join(recorded, " "); !strings.Contains(all, "real-1") || !strings.Contains(all, "call-2") {
					t.Errorf("the endpoint's ids are not in what the client heard: %s", all)
				}
				data, err := os.ReadFile(to)
				if err != nil || strings.Contains(string(data), "secret") {
					t.Fatalf("%v: %s", err, data)
				}
				script, err := Load(to)
				if err != nil {
					t.Fatal(err)
				}
				if len(script.rules) != 3 || len(script.rules[0].Faults) != 2 || script.rules[0].Faults[0].Times != 2 {
					t.Errorf("recorded rules:\n%s", data)
				}
				if diff := cmp.Diff(recorded, hold(t, New(script), stream)); diff != "" {
					t.Errorf("the replay differs (-recorded +played):\n%s", diff)
				}
			})
		}
	}
}

// Bytes and status pass through the recorder unchanged, whatever they are.
func TestRecorderPassesThrough(t *testing.T) {
	script := mustScript(t, faulty("{kind: html}, {kind: invalidUTF8}, {kind: noFinish}, {kind: status, status: 500}, {kind: cut, after: 2}, {kind: unknownFinish}"))
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "recorded.yaml")
			direct, through := httptest.NewServer(New(script)), httptest.NewServer(recorderOf(t, New(script), to, nil))
			defer direct.Close()
			defer through.Close()
			for range 7 {
				want, got := ask(t, direct, format, true, 1<<20), ask(t, through, format, true, 1<<20)
				if want.status != got.status || want.body != got.body || (want.err == nil) != (got.err == nil) {
					t.Errorf("through the recorder %d %v:\n%s\nwant %d %v:\n%s", got.status, got.err, got.body, want.status, want.err, want.body)
				}
			}
			// The second answer was a good one, if an odd one, so it stands.
			recorded, err := Load(to)
			if err != nil || len(recorded.rules) != 1 || len(recorded.rules[0].Faults) != 1 || recorded.rules[0].Faults[0].Kind != faultHTML {
				t.Fatalf("%v, %+v", err, recorded)
			}
		})
	}
}

// Answers that broke off are faults of the recorded rule, which has no reply as
// long as there was none.
func TestRecorderKeepsBrokenAnswers(t *testing.T) {
	script := mustScript(t, "version: 1\nrules: [{when: {}, faults: [{kind: noFinish}, {kind: cut, after: 3}, {kind: streamError, message: busy}, {kind: status, status: 400, code: context_length_exceeded, message: too long}]}]")
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "recorded.yaml")
			server := httptest.NewServer(recorderOf(t, New(script), to, nil))
			defer server.Close()
			for range 4 {
				ask(t, server, format, true, 1<<20)
			}
			server.Close()
			recorded, err := Load(to)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range recorded.rules[0].Faults {
				got = append(got, fmt.Sprintf("%s %d %s", f.Kind, f.Status, f.Message))
			}
			if diff := cmp.Diff([]string{"noFinish 0 ", "cut 0 ", "streamError 0 busy", "status 400 too long"}, got); diff != "" || recorded.rules[0].Reply != nil {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// A directory gets a script for each conversation, and never loses an earlier one.
func TestRecordToDirectory(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := recorderOf(t, New(mustScript(t, sayOK)), dir, nil)
		for _, text := range []string{"one", "two"} {
			if status, answer := post(t, s, chatBodyFor("m", text)); status != 200 {
				t.Fatalf("status %d: %s", status, answer)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		if _, err := Load(path); err != nil {
			t.Error(err)
		}
	}
}

// The endpoint gets its own key, read at each request, and never the client's;
// an answer that repeats a key is recorded without it.
func TestRecorderKeys(t *testing.T) {
	var seen []http.Header
	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Clone())
		message := "bad key " + r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
		_ = writeJSON(w, 401, object{"error": object{"message": message}})
	})
	to := filepath.Join(t.TempDir(), "recorded.yaml")
	keys := []string{"first-key-\"<", "second-key"}
	s := recorderOf(t, endpoint, to, func() (string, error) {
		key := keys[0]
		keys = keys[1:]
		return key, nil
	})
	client := map[string]string{"Authorization": "Bearer client-key", "X-Api-Key": "client-other"}
	postWith(t, s, "/v1/chat/completions", chatBodyFor("m", "one"), client)
	postWith(t, s, "/v1/messages", messagesBody("", askWrite), client)
	if len(seen) != 2 || seen[0].Get("Authorization") != "Bearer first-key-\"<" || seen[0].Get("X-Api-Key") != "" ||
		seen[1].Get("X-Api-Key") != "second-key" || seen[1].Get("Authorization") != "" || seen[1].Get("Anthropic-Version") == "" || seen[0].Get("Accept-Encoding") != "" {
		t.Errorf("the endpoint saw %+v", seen)
	}
	data, err := os.ReadFile(to)
	if err != nil || strings.Contains(string(data), "-key") || strings.Count(string(data), removed) != 2 {
		t.Errorf("%v: %s", err, data)
	}
}

// An endpoint that does not answer is a 502 in the format's shape; nothing is recorded.
func TestRecorderWithoutEndpoint(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	to := filepath.Join(t.TempDir(), "recorded.yaml")
	r, err := NewRecorder(dead.URL, to, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := New(nil, WithRecorder(r))
	status, answer := post(t, s, chatBodyFor("m", "one"))
	if message, code := errorOf(t, answer); status != 502 || code != "upstream" || !strings.HasPrefix(message, "asking the endpoint") {
		t.Errorf("status %d: %s", status, answer)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("something was recorded: %v", err)
	}
	if r := lastRecord(s); r.Complete || r.Status != 502 {
		t.Errorf("%+v", r)
	}
}

// A client may leave at the end mark, before the end of the body: the answer
// was whole, and is recorded by then. One that leaves earlier records nothing.
func TestClientLeavesAtTheEndMark(t *testing.T) {
	for format, f := range formats {
		t.Run(format, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "recorded.yaml")
			// The endpoint never ends the body that it sends a part of.
			endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				answer := httptest.NewRecorder()
				New(mustScript(t, sayOK)).ServeHTTP(answer, r)
				body := answer.Body.String()
				if r.Header.Get("X-Part") == "half" {
					body = body[:len(body)/2]
				}
				_, _ = io.WriteString(w, body)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			s := recorderOf(t, endpoint, to, nil)
			server := httptest.NewServer(s)
			defer server.Close()
			for _, part := range []string{"half", "whole"} {
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+f.path, strings.NewReader(f.body(true)))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Anthropic-Version", "2023-06-01")
				req.Header.Set("X-Part", part)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				var got strings.Builder
				buffer := make([]byte, 1)
				for mark := map[string]string{"half": "data: ", "whole": f.end}[part]; !strings.Contains(got.String(), mark); {
					n, err := resp.Body.Read(buffer)
					if err != nil {
						t.Fatalf("%s: the stream ended after %q: %v", part, got.String(), err)
					}
					got.Write(buffer[:n])
				}
				if _, err := os.Stat(to); os.IsNotExist(err) != (part == "half") {
					t.Errorf("%s of the answer: %v", part, err)
				}
				cancel()
				resp.Body.Close()
			}
			server.Close() // waits for what the half answer left behind
			if script, err := Load(to); err != nil || script.rules[0].Reply.Text != "ok" || script.rules[0].Faults != nil {
				t.Errorf("%v, %+v", err, script)
			}
		})
	}
}

// The models of the endpoint are the recorder's.
func TestRecorderListsModels(t *testing.T) {
	s := recorderOf(t, New(mustScript(t, "version: 1\nmodels: [far]\nrules: [{when: {}, reply: {text: a}}]")), filepath.Join(t.TempDir(), "r.yaml"), nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	var in struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(w.Body).Decode(&in); err != nil || len(in.Data) != 1 || in.Data[0].ID != "far" {
		t.Errorf("%+v, %v", in, err)
	}
}

// What a reply cannot say in the same order is said to be lost, not silently moved.
func TestHeardLosses(t *testing.T) {
	h, err := anthropic{}.readWhole([]byte(`{"id":"m","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"x","input":{"b": 1}},{"type":"text","text":"c"},{"type":"server_tool_use"}],"stop_reason":"pause_turn"}`))
	if err != nil || len(h.losses) != 2 || h.reply.Text != "ac" || *h.reply.ToolCalls[0].RawArguments != `{"b": 1}` || h.reply.RawFinish != "pause_turn" {
		t.Errorf("%+v, %v", h, err)
	}
	h, err = openAI{}.readWhole([]byte(`{"choices":[{"message":{"content":"a","reasoning":"r"},"finish_reason":"stop"},{"message":{}}]}`))
	if err != nil || len(h.losses) != 1 || h.reply.Reasoning != "r" || h.unfinished {
		t.Errorf("%+v, %v", h, err)
	}
}

// A stream is read as its format says: lines may end either way, comments and
// unknown fields mean nothing, an event that is not complete does not count.
func TestEventData(t *testing.T) {
	got := eventData([]byte(": hi\n\nevent: x\r\ndata: a\r\n\r\ndata:b\ndata: c\nid: 1\n\ndata:\n\ndata: cut"))
	var texts []string
	for _, e := range got {
		texts = append(texts, string(e))
	}
	if diff := cmp.Diff([]string{"a", "b\nc", ""}, texts); diff != "" {
		t.Errorf("eventData() (-want +got):\n%s", diff)
	}
}
