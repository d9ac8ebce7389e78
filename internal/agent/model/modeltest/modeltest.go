// SPDX-License-Identifier: Apache-2.0

// Package modeltest holds what every model.Provider must do, as a suite that each
// provider runs against a server on loopback. The server is an ordinary HTTP
// server whose answers are written out byte by byte by the test: nothing of the
// provider's SDK stands on its side.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// Wire says how one provider's protocol looks, for the suite to speak its other side.
type Wire struct {
	// New makes the provider under test.
	New func(t *testing.T, c Config) model.Provider
	// Stream renders an answer as the pieces of a text/event-stream body. Each piece
	// is flushed by itself, and only the last one completes the answer.
	Stream func(model.Answer) []string
	// Text renders a piece of an unfinished answer that adds this content.
	Text func(content string) string
	// Call renders the pieces of an unfinished answer that calls a tool under this ID
	// with these pieces of arguments.
	Call func(id string, arguments ...string) []string
	// Signed renders an answer that reasons and calls the tool bash once, with whatever the protocol has
	// for a provider that wants its reasoning back, and says what must be in the next request then:
	// nothing where the protocol has nothing for it.
	Signed func(reasoning string) (pieces []string, inBody string)
	// Failure renders an event inside a stream that says that the server failed.
	Failure func(message string) string
	// Key finds the API key in a request.
	Key func(http.Header) string
	// Split takes a body apart into everything that is not a message, and the raw
	// messages; what may move from request to request (such as cache breakpoints)
	// is left out.
	Split func(body []byte) (head []byte, messages []json.RawMessage, err error)
}

// Config is what the suite tells the provider.
type Config struct {
	BaseURL     string
	KeyFile     string
	IdleTimeout time.Duration // 0 is the provider's default
}

// Received is a request as the server got it.
type Received struct {
	Path   string
	Header http.Header
	Body   []byte
}

// Server answers with what the test says and keeps what it got.
type Server struct {
	*httptest.Server
	mu  sync.Mutex
	got []Received
}

// Got is every request so far.
func (s *Server) Got() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *Server) keep(r Received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r)
}

// Serve starts a server; answer runs for each request after its body was read.
func Serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *Server {
	t.Helper()
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the server reads the body: %v", err)
		}
		s.keep(Received{Path: r.URL.Path, Header: r.Header.Clone(), Body: body})
		answer(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Pieces answers with a stream, flushing each piece.
func Pieces(pieces ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	}
}

// Status answers with a status and a body.
func Status(code int, kind, body string, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// Cut answers with pieces and then drops the connection in the middle of the body.
func Cut(pieces ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		Pieces(pieces...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

// Key is the API key that the suite uses. It must turn up nowhere but in the request.
const Key = "sk-very-secret-0123456789"

// KeyFile writes Key, with the newline that people leave at the end.
func KeyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Outcome is a whole stream.
type Outcome struct {
	Content, Reasoning string // joined from the pieces
	Pieces             int
	Answer             *model.Answer
	Err                error
}

// Collect sends and reads to the end.
func Collect(ctx context.Context, p model.Provider, prepared model.Prepared) Outcome {
	var o Outcome
	for d, err := range p.Send(ctx, prepared) {
		if err != nil {
			o.Err = err
			break
		}
		o.Content += d.Content
		o.Reasoning += d.Reasoning
		o.Pieces++
		o.Answer = d.Answer
	}
	return o
}

// WantError checks that an outcome is an error of this kind and gives no answer.
func WantError(t *testing.T, o Outcome, kind model.Kind) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](o.Err)
	if !ok || e.Kind != kind || o.Answer != nil {
		t.Fatalf("Send() gave %+v and the error %#v, want a %s error and no answer", o.Answer, o.Err, kind)
	}
	return e
}

// Request is one that uses every field.
func Request() model.Request {
	return model.Request{
		Model:      "test-model",
		Parameters: model.Parameters{MaxTokens: 4096, Effort: "low"},
		System:     "You are <a> test & more.",
		Tools: []model.ToolSpec{
			{Name: "read", Description: "Reads a file.", Schema: json.RawMessage(`{ "type": "object", "properties": {"path": {"type": "string"}} }`)},
			{Name: "bash", Description: "Runs a command.", Schema: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{}}}`)},
		},
		Messages: []model.Message{
			{Role: model.User, Content: "read \u2028 both <files>"},
			{Role: model.Assistant, Reasoning: "two calls", ToolCalls: []model.ToolCall{
				{ID: "c1", Name: "read", Arguments: `{"path":"a"}`},
				{ID: "c2", Name: "read", Arguments: `{"path": broken`},
			}},
			{Role: model.Tool, ToolCallID: "c1", Content: "A"},
			{Role: model.Tool, ToolCallID: "c2", Content: ""},
		},
	}
}

func mustPrepare(t *testing.T, p model.Provider, r model.Request) model.Prepared {
	t.Helper()
	prepared, err := p.Prepare(r)
	if err != nil {
		t.Fatalf("Prepare() = %v", err)
	}
	return prepared
}
