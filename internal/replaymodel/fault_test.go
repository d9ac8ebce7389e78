// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

// formats are the two ways to ask the same question, streamed or not.
var formats = map[string]struct {
	path string
	body func(stream bool) string
	end  string // of a complete stream
}{
	"openai": {"/v1/chat/completions", func(stream bool) string {
		return `{"model":"m","stream":` + map[bool]string{true: "true", false: "false"}[stream] + `,"messages":[` + askWrite + `]}`
	}, "data: [DONE]"},
	"anthropic": {"/v1/messages", func(stream bool) string {
		return messagesBody(`"stream":`+map[bool]string{true: "true", false: "false"}[stream]+`,`, askWrite)
	}, "event: message_stop"},
}

func faulty(faults string) string {
	return "version: 1\nrules: [{when: {}, faults: [" + faults + "], reply: {text: all is well again}}]"
}

// result is what a client without any library sees.
type result struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// ask reads at most limit bytes, then leaves.
func ask(t *testing.T, server *httptest.Server, format string, stream bool, limit int64) result {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	f := formats[format]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+f.path, strings.NewReader(f.body(stream)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	return result{resp.StatusCode, resp.Header, string(body), err}
}

// Each fault looks as it does at a provider, befalls the attempts that the
// script names, and then the reply plays.
func TestFaults(t *testing.T) {
	const enough = 1 << 20
	complete := func(t *testing.T, format string, stream bool, r result) {
		if r.err != nil || r.status != 200 || (stream && !strings.Contains(r.body, formats[format].end)) {
			t.Errorf("not a complete reply: %d, %v: %s", r.status, r.err, r.body)
		}
	}
	for name, tc := range map[string]struct {
		faults string
		check  func(t *testing.T, format string, stream bool, r result)
		cold   bool // the prompt was never processed
	}{
		"rate limit": {"{kind: status, status: 429, retryAfter: 7}", func(t *testing.T, _ string, _ bool, r result) {
			if r.status != 429 || r.header.Get("Retry-After") != "7" || !strings.Contains(r.body, `"rate_limit_error"`) {
				t.Errorf("%+v", r)
			}
		}, true},
		"server error": {"{kind: status, status: 503, message: try later}", func(t *testing.T, _ string, _ bool, r result) {
			if r.status != 503 || r.header.Get("Retry-After") != "" || !strings.Contains(r.body, `"message":"try later"`) {
				t.Errorf("%+v", r)
			}
		}, true},
		"context length": {"{kind: contextLength}", func(t *testing.T, format string, _ bool, r result) {
			want := map[string]string{"openai": `"code":"context_length_exceeded"`, "anthropic": "prompt is too long: 131073 tokens > 131072 maximum"}[format]
			if r.status != 400 || !strings.Contains(r.body, want) {
				t.Errorf("%+v", r)
			}
		}, true},
		"a page": {"{kind: html}", func(t *testing.T, _ string, _ bool, r result) {
			if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/html") || !strings.HasPrefix(r.body, "<!DOCTYPE html>") {
				t.Errorf("%+v", r)
			}
		}, true},
		"cut": {"{kind: cut}", func(t *testing.T, format string, stream bool, r result) {
			if !errors.Is(r.err, io.ErrUnexpectedEOF) || !strings.Contains(r.body, "all is") || strings.Contains(r.body, formats[format].end) {
				t.Errorf("%+v", r)
			}
		}, false},
		"cut at once": {"{kind: cut, after: 0}", func(t *testing.T, _ string, stream bool, r result) {
			if !errors.Is(r.err, io.ErrUnexpectedEOF) || (stream && r.body != "") {
				t.Errorf("%+v", r)
			}
		}, false},
		"no finish": {"{kind: noFinish}", func(t *testing.T, format string, stream bool, r result) {
			if r.err != nil || !strings.Contains(r.body, "all is") || strings.Contains(r.body, formats[format].end) || strings.Contains(r.body, "end_turn") || strings.Contains(r.body, `"stop"`) {
				t.Errorf("%+v", r)
			}
		}, false},
		"an empty stream": {"{kind: noFinish, after: 0}", func(t *testing.T, _ string, stream bool, r result) {
			if r.err != nil || r.status != 200 || (stream && r.body != "") {
				t.Errorf("%+v", r)
			}
		}, false},
		"an error within the stream": {"{kind: streamError, message: too busy}", func(t *testing.T, format string, stream bool, r result) {
			if r.err != nil || !strings.Contains(r.body, `"message":"too busy"`) || strings.Contains(r.body, formats[format].end) || (r.status == 200) != stream {
				t.Errorf("%+v", r)
			}
		}, false},
		"bytes that are no text": {"{kind: invalidUTF8}", func(t *testing.T, format string, stream bool, r result) {
			complete(t, format, stream, r)
			if utf8.ValidString(r.body) {
				t.Errorf("valid UTF-8: %q", r.body)
			}
		}, false},
		"an unknown finish reason": {"{kind: unknownFinish}", func(t *testing.T, format string, stream bool, r result) {
			complete(t, format, stream, r)
			if !strings.Contains(r.body, unknownFinish) {
				t.Errorf("%+v", r)
			}
		}, false},
		"endless text": {"{kind: endless}", func(t *testing.T, _ string, stream bool, r result) {
			if r.err != nil || len(r.body) != enough || (stream && strings.Count(r.body, "and so on, ") < 9*1024) {
				t.Errorf("%d bytes, %v", len(r.body), r.err)
			}
		}, false},
		"endless arguments": {"{kind: endless, of: arguments}", func(t *testing.T, format string, stream bool, r result) {
			want := map[string]string{"openai": `"function":{"arguments":"and so on`, "anthropic": `"partial_json":"and so on`}[format]
			if r.err != nil || len(r.body) != enough || (stream && !strings.Contains(r.body, want)) {
				t.Errorf("%d bytes, %v", len(r.body), r.err)
			}
		}, false},
		"endless reasoning": {"{kind: endless, of: reasoning}", func(t *testing.T, format string, stream bool, r result) {
			want := map[string]string{"openai": `"reasoning_content":"and so on`, "anthropic": `"thinking":"and so on`}[format]
			if r.err != nil || len(r.body) != enough || (stream && !strings.Contains(r.body, want)) {
				t.Errorf("%d bytes, %v", len(r.body), r.err)
			}
		}, false},
		"an endless line": {"{kind: endless, of: line}", func(t *testing.T, _ string, _ bool, r result) {
			if r.err != nil || len(r.body) != enough || strings.Count(r.body[strings.LastIndex(r.body, "data: "):], "\n") != 0 {
				t.Errorf("%d bytes, %v", len(r.body), r.err)
			}
		}, false},
	} {
		for format := range formats {
			for how, stream := range map[string]bool{"streamed": true, "whole": false} {
				t.Run(name+" "+format+" "+how, func(t *testing.T) {
					s := New(mustScript(t, faulty(tc.faults)))
					server := httptest.NewServer(s)
					defer server.Close()
					tc.check(t, format, stream, ask(t, server, format, stream, enough))
					first := s.Requests()[0]
					if first.Fault == "" {
						t.Errorf("the record does not name the fault: %+v", first)
					}
					complete(t, format, stream, ask(t, server, format, stream, enough))
					again := s.Requests()[1]
					if again.Fault != "" || (again.CommonPrefixBytes == 0) != tc.cold {
						t.Errorf("second attempt %+v, cold cache %t", again, tc.cold)
					}
				})
			}
		}
	}
}

// A stall keeps the connection open and silent until the client leaves, and the
// server does not wait for longer.
func TestStall(t *testing.T) {
	for format, f := range formats {
		t.Run(format, func(t *testing.T) {
			s := New(mustScript(t, faulty("{kind: stall, after: 2}")))
			server := httptest.NewServer(s)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+f.path, strings.NewReader(f.body(true)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Anthropic-Version", "2023-06-01")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got strings.Builder
			buffer := make([]byte, 1)
			for strings.Count(got.String(), "\n\n") < 2 {
				n, err := resp.Body.Read(buffer)
				if err != nil {
					t.Fatalf("the stream ended after %q: %v", got.String(), err)
				}
				got.Write(buffer[:n])
			}
			if r := lastRecord(s); r.Complete || r.Fault != "stall" {
				t.Errorf("while it stalls: %+v", r)
			}
			leave()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("after leaving: %v", err)
			}
			server.Close() // returns when the handler has
			if r := lastRecord(s); r.Complete || !strings.Contains(r.Error, "stall") {
				t.Errorf("afterwards: %+v", r)
			}
		})
	}
}

// Faults are counted for each body: another conversation has its own, a rule
// without a reply never recovers, and a new server begins anew.
func TestFaultsByAttempt(t *testing.T) {
	script := mustScript(t, `
version: 1
rules:
- {when: {lastUser: lost}, faults: [{kind: status, status: 429}, {kind: status, status: 500}]}
- {when: {}, faults: [{kind: status, status: 429, times: 2}, {kind: status, status: 503}], reply: {text: well}}
`)
	statuses := func(s *Server, text string, n int) (out []int) {
		for range n {
			status, _ := post(t, s, chatBodyFor("m", text))
			out = append(out, status)
		}
		return out
	}
	same := func(name string, got []int, want ...int) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: statuses %v, want %v", name, got, want)
				return
			}
		}
	}
	s := New(script)
	same("first", statuses(s, "one", 3), 429, 429, 503)
	same("another body", statuses(s, "two", 1), 429)
	same("first again", statuses(s, "one", 2), 200, 200)
	same("without a reply", statuses(s, "lost", 4), 429, 500, 500, 500)
	same("a new server", statuses(New(script), "one", 1), 429)
}

// The attempts that are remembered are bounded; what is forgotten begins anew.
func TestAttemptsAreBounded(t *testing.T) {
	var a attempts
	a.next("first")
	for i := range maxAttempted {
		a.next(string(rune(i + 1)))
	}
	if got := len(a.count); got != maxAttempted || len(a.order) != maxAttempted {
		t.Errorf("%d bodies counted, want %d", got, maxAttempted)
	}
	if n := a.next("first"); n != 1 {
		t.Errorf("a forgotten body is at attempt %d", n)
	}
}

// The official clients take the error answers for what they are.
func TestOfficialClientsSeeFaults(t *testing.T) {
	s := New(mustScript(t, faulty("{kind: status, status: 429, retryAfter: 3}, {kind: contextLength}, {kind: streamError, message: too busy}")))
	chat, messages := client(t, s, "any"), messagesClient(t, s, "any")
	chatErr := func() error {
		stream := chat.Chat.Completions.NewStreaming(t.Context(), params("hello"))
		defer stream.Close()
		for stream.Next() {
		}
		return stream.Err()
	}
	messagesErr := func() error {
		stream := messages.Messages.NewStreaming(t.Context(), messageParams(sdk.NewTextBlock("hello")))
		defer stream.Close()
		for stream.Next() {
		}
		return stream.Err()
	}
	if e, ok := errors.AsType[*openai.Error](chatErr()); !ok || e.StatusCode != 429 || e.Response.Header.Get("Retry-After") != "3" {
		t.Errorf("rate limit: %v", e)
	}
	if e, ok := errors.AsType[*openai.Error](chatErr()); !ok || e.Code != "context_length_exceeded" {
		t.Errorf("context length: %v", e)
	}
	if e, ok := errors.AsType[*sdk.Error](messagesErr()); !ok || e.StatusCode != 429 || e.Type() != "rate_limit_error" {
		t.Errorf("rate limit: %v", e)
	}
	if e, ok := errors.AsType[*sdk.Error](messagesErr()); !ok || e.StatusCode != 400 || !strings.Contains(e.Error(), "prompt is too long") {
		t.Errorf("context length: %v", e)
	}
	for format, err := range map[string]error{"openai": chatErr(), "anthropic": messagesErr()} {
		if err == nil || !strings.Contains(err.Error(), "too busy") {
			t.Errorf("%s: an error within the stream: %v", format, err)
		}
	}
}

// A script demands model and headers, and cannot demand secrets.
func TestRequireModelAndHeader(t *testing.T) {
	s := New(mustScript(t, `{version: 1, rules: [{when: {}, require: {model: m, header: {X-Session: {mustContain: [abc]}}}, reply: {text: ok}}]}`))
	for name, tc := range map[string]struct {
		model, header, want string
	}{
		"both":           {"m", "abc-1", ""},
		"another model":  {"n", "abc-1", `the model must be "m", but it is "n"`},
		"another header": {"m", "x", `the header X-Session must contain "abc", but it does not; it is: "x"`},
		"no header":      {"m", "", `the header X-Session must contain "abc"`},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := postWith(t, s, "/v1/chat/completions", chatBodyFor(tc.model, "x"), map[string]string{"X-Session": tc.header})
			if tc.want == "" {
				if status != 200 {
					t.Errorf("status %d: %s", status, answer)
				}
				return
			}
			if message, _ := errorOf(t, answer); status != 400 || !strings.Contains(message, tc.want) {
				t.Errorf("status %d: %q, want %q", status, message, tc.want)
			}
		})
	}
}
