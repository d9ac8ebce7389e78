// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// Test runs the whole contract against one provider.
func Test(t *testing.T, w Wire) {
	t.Run("bytes", func(t *testing.T) { testBytes(t, w) })
	t.Run("answers", func(t *testing.T) { testAnswers(t, w) })
	t.Run("reasoning", func(t *testing.T) { testReasoning(t, w) })
	t.Run("bytes that are not UTF-8", func(t *testing.T) { testBadBytes(t, w) })
	t.Run("key", func(t *testing.T) { testKey(t, w) })
	t.Run("errors", func(t *testing.T) { testErrors(t, w) })
	t.Run("unreachable", func(t *testing.T) { testUnreachable(t, w) })
	t.Run("streams", func(t *testing.T) { testStreams(t, w) })
	t.Run("gigantic", func(t *testing.T) { testGigantic(t, w) })
	t.Run("growth", func(t *testing.T) { testGrowth(t, w) })
	t.Run("caller", func(t *testing.T) { testCaller(t, w) })
}

// The same request is the same bytes; a longer history only adds messages; what
// was prepared is what arrives.
func testBytes(t *testing.T, w Wire) {
	answer := model.Answer{Content: "ok", Finish: model.FinishStop}
	s := Serve(t, Pieces(w.Stream(answer)...))
	p := w.New(t, Config{BaseURL: s.URL})
	short := mustPrepare(t, p, Request())
	if again := mustPrepare(t, p, Request()); again.Digest() != short.Digest() || !bytes.Equal(again.Body(), short.Body()) {
		t.Error("the same request gave other bytes")
	}
	r := Request()
	r.Messages = append(r.Messages,
		model.Message{Role: model.Assistant, Content: "done"},
		model.Message{Role: model.User, Content: "more"})
	long := mustPrepare(t, p, r)
	shortHead, shortMessages, err := w.Split(short.Body())
	if err != nil {
		t.Fatal(err)
	}
	longHead, longMessages, err := w.Split(long.Body())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(shortHead, longHead) {
		t.Errorf("the head changed from\n%s\nto\n%s", shortHead, longHead)
	}
	for i, m := range shortMessages {
		if !bytes.Equal(m, longMessages[i]) {
			t.Errorf("message %d changed from\n%s\nto\n%s", i, m, longMessages[i])
		}
	}
	if o := Collect(t.Context(), p, short); o.Err != nil {
		t.Fatal(o.Err)
	}
	sum := sha256.Sum256(s.Got()[0].Body)
	if len(s.Got()) != 1 || !bytes.Equal(short.Body(), s.Got()[0].Body) || hex.EncodeToString(sum[:]) != short.Digest() {
		t.Errorf("%d requests arrived, the first was\n%s\nwant once\n%s", len(s.Got()), s.Got()[0].Body, short.Body())
	}
}

// What the endpoint streams in pieces comes out whole.
func testAnswers(t *testing.T, w Wire) {
	usage := model.Usage{Input: 10, CachedInput: 128, Output: 7, Reasoning: 3}
	for name, want := range map[string]model.Answer{
		"text":                 {Content: "Hello, wörld \u2603", Finish: model.FinishStop, Usage: usage},
		"nothing cached":       {Content: "x", Finish: model.FinishStop, Usage: model.Usage{Input: 5, Output: 1}},
		"reasoning, then text": {Content: "42", Reasoning: "let me think", Finish: model.FinishStop, Usage: usage},
		"an unknown reason":    {Content: "x", Finish: "insufficient_system_resource", Usage: usage},
		"cut at the limit":     {Content: "half", Finish: model.FinishLength, Usage: usage},
		"two calls, one with broken arguments": {Content: "I look", Finish: model.FinishToolCalls, Usage: usage, ToolCalls: []model.ToolCall{
			{ID: "call_a", Name: "read", Arguments: `{"path": "a.txt"}`},
			{ID: "call_b", Name: "bash", Arguments: `{"command": "echo \"<hi>\"`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Serve(t, Pieces(w.Stream(want)...))
			p := w.New(t, Config{BaseURL: s.URL})
			o := Collect(t.Context(), p, mustPrepare(t, p, Request()))
			if o.Err != nil {
				t.Fatalf("Send() = %v", o.Err)
			}
			if diff := cmp.Diff(&want, o.Answer); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if o.Answer != nil && o.Answer.Usage.Input+o.Answer.Usage.CachedInput != want.Usage.Input+want.Usage.CachedInput {
				t.Error("a token of the prompt was counted twice, or never")
			}
			if o.Content != want.Content || o.Reasoning != want.Reasoning {
				t.Errorf("the deltas add up to %q and %q, want %q and %q", o.Content, o.Reasoning, want.Content, want.Reasoning)
			}
		})
	}
}

// Bytes that are not UTF-8 are replaced, in text, reasoning and arguments; nothing else is.
func testBadBytes(t *testing.T, w Wire) {
	answer := model.Answer{Content: "aX bc", Reasoning: "dX ef", Finish: model.FinishToolCalls, ToolCalls: []model.ToolCall{{ID: "c", Name: "bash", Arguments: "gX hi"}}}
	pieces := w.Stream(answer)
	for i, piece := range pieces {
		pieces[i] = strings.ReplaceAll(piece, "X", "\xff")
	}
	s := Serve(t, Pieces(pieces...))
	p := w.New(t, Config{BaseURL: s.URL})
	o := Collect(t.Context(), p, mustPrepare(t, p, Request()))
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	answer.Content, answer.Reasoning, answer.ToolCalls[0].Arguments = "a\uFFFD bc", "d\uFFFD ef", "g\uFFFD hi"
	if diff := cmp.Diff(&answer, o.Answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// The key is read for each request, goes into the request, and a missing one
// stops it before anything is sent.
func testKey(t *testing.T, w Wire) {
	s := Serve(t, Pieces(w.Stream(model.Answer{Content: "ok", Finish: model.FinishStop})...))
	path := KeyFile(t)
	p := w.New(t, Config{BaseURL: s.URL, KeyFile: path})
	prepared := mustPrepare(t, p, Request())
	for _, key := range []string{Key, "rotated-key"} {
		if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := Collect(t.Context(), p, prepared); o.Err != nil {
			t.Fatal(o.Err)
		}
		if got := w.Key(s.Got()[len(s.Got())-1].Header); got != key {
			t.Errorf("the endpoint was given the key %q, want %q", got, key)
		}
	}
	sent := len(s.Got())
	for name, content := range map[string]string{"empty": " \n", "two lines": "a\nb", "binary": "\x00\x01"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		e := WantError(t, Collect(t.Context(), p, prepared), model.KeyMissing)
		if !strings.Contains(e.Error(), path) || e.Reason() != "ModelKeyMissing" || e.Retryable() {
			t.Errorf("%s key: %v, want it to name %s", name, e, path)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	WantError(t, Collect(t.Context(), p, prepared), model.KeyMissing)
	if len(s.Got()) != sent {
		t.Errorf("%d requests left without a key", len(s.Got())-sent)
	}
	t.Setenv("OPENAI_API_KEY", "from-the-environment")
	t.Setenv("ANTHROPIC_API_KEY", "from-the-environment")
	p = w.New(t, Config{BaseURL: s.URL})
	if o := Collect(t.Context(), p, prepared); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := w.Key(s.Got()[len(s.Got())-1].Header); got != "" {
		t.Errorf("without a key file the endpoint was given %q", got)
	}
}

// Each status is sorted, its message says what to check and never holds the key.
func testErrors(t *testing.T, w Wire) {
	said := func(s string) string {
		quoted, _ := json.Marshal(s)
		return fmt.Sprintf(`{"error":{"message":%s,"type":"x"}}`, quoted)
	}
	const asJSON = "application/json"
	elsewhere := Serve(t, Pieces(w.Stream(model.Answer{Content: "stolen", Finish: model.FinishStop})...))
	for name, tc := range map[string]struct {
		answer     http.HandlerFunc
		kind       model.Kind
		status     int
		retryable  bool
		retryAfter time.Duration
		want       []string
	}{
		"401":              {Status(401, asJSON, said("bad key: "+Key)), model.Auth, 401, false, 0, []string{"check the API key", "bad key: [key]"}},
		"403":              {Status(403, asJSON, `{"error":"no access"}`), model.Auth, 403, false, 0, []string{"no access"}},
		"404":              {Status(404, asJSON, said("no such model")), model.NotFound, 404, false, 0, []string{"base URL", `"test-model"`, "no such model"}},
		"400":              {Status(400, asJSON, said("bad effort\x1b[31m\nfoo")), model.BadRequest, 400, false, 0, []string{"parameters", "bad effort [31m foo"}},
		"429":              {Status(429, asJSON, said("slow down"), "Retry-After", "7"), model.RateLimited, 429, true, 7 * time.Second, []string{"quota"}},
		"too long":         {Status(400, asJSON, said("prompt is too long: 210000 tokens > 200000 maximum")), model.ContextOverflow, 400, false, 0, []string{"shortened", "210000"}},
		"too long by code": {Status(400, asJSON, `{"error":{"message":"no","code":"context_length_exceeded"}}`), model.ContextOverflow, 400, false, 0, []string{"shortened"}},
		"429 for ever":     {Status(429, asJSON, "", "Retry-After", "1e30"), model.RateLimited, 429, true, time.Hour, nil},
		"500":              {Status(500, "text/plain", "oops"), model.Server, 500, true, 0, []string{"oops"}},
		"503 as a page":    {Status(503, "text/html", "<html>sorry</html>"), model.Server, 503, true, 0, []string{"web page"}},
		"500 without end":  {endless(500, "text/plain"), model.Server, 500, true, 0, nil},
		"a page with 200":  {Status(200, "text/html; charset=utf-8", "<html>welcome</html>"), model.Nonsense, 200, false, 0, []string{"text/html", "base URL"}},
		"JSON with 200":    {Status(200, asJSON, said("not like this")), model.Nonsense, 200, false, 0, []string{"not like this"}},
		"a redirect":       {Status(307, asJSON, "", "Location", elsewhere.URL+"/v1"), model.NotFound, 307, false, 0, []string{"redirects"}},
		"204":              {Status(204, asJSON, ""), model.Nonsense, 204, false, 0, nil},
		"a stream of junk": {Pieces("data: <html>\n\n"), model.Nonsense, 0, false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := Serve(t, tc.answer)
			p := w.New(t, Config{BaseURL: s.URL, KeyFile: KeyFile(t)})
			e := WantError(t, Collect(t.Context(), p, mustPrepare(t, p, Request())), tc.kind)
			if e.Status != tc.status || e.Retryable() != tc.retryable || e.RetryAfter != tc.retryAfter {
				t.Errorf("error %+v, want status %d, retryable %v after %s", e, tc.status, tc.retryable, tc.retryAfter)
			}
			for _, want := range append(tc.want, s.URL) {
				if !strings.Contains(e.Error(), want) {
					t.Errorf("error %q does not say %q", e, want)
				}
			}
			if strings.Contains(fmt.Sprintf("%v %+v %#v", e, e, e), Key) {
				t.Errorf("the error holds the key: %v", e)
			}
			if len(e.Error()) > 1000 || strings.ContainsAny(e.Error(), "\n\x1b") {
				t.Errorf("the error does not fit a line: %q", e)
			}
			if len(s.Got()) != 1 {
				t.Errorf("%d requests, want 1: retrying is not the provider's", len(s.Got()))
			}
		})
	}
	if len(elsewhere.Got()) != 0 {
		t.Error("a redirect was followed to another host")
	}
}

func endless(status int, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
				return
			}
		}
	}
}
