// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func mustScript(t testing.TB, text string) *Script {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// post sends a chat-completions body as it stands and returns the status and the answer.
func post(t testing.TB, h http.Handler, body string) (int, string) {
	t.Helper()
	return postWith(t, h, "/v1/chat/completions", body, nil)
}

// postMessages sends a body of the messages format.
func postMessages(t testing.TB, h http.Handler, body string) (int, string) {
	t.Helper()
	return postWith(t, h, "/v1/messages", body, nil)
}

// postWith also sets headers; an empty one is left out.
func postWith(t testing.TB, h http.Handler, path, body string, header map[string]string) (int, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if path == "/v1/messages" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	for name, value := range header {
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func messagesBody(params string, turns ...string) string {
	return `{"model":"m","max_tokens":100,` + params + `"messages":[` + strings.Join(turns, ",") + `]}`
}

// errorOf returns the message and code of an error answer.
func errorOf(t testing.TB, answer string) (message, code string) {
	t.Helper()
	var in struct {
		Error struct{ Message, Code string }
	}
	if err := json.Unmarshal([]byte(answer), &in); err != nil || in.Error.Message == "" {
		t.Fatalf("not an error answer: %s", answer)
	}
	return in.Error.Message, in.Error.Code
}

const sayOK = "version: 1\nrules: [{when: {}, reply: {text: ok}}]\n"
