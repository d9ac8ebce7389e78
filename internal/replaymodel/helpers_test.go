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

// post sends a body as it stands and returns the status and the answer.
func post(t testing.TB, h http.Handler, body string) (int, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := http.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
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
