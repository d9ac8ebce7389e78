// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chatMessage is a message as the endpoint received it.
type chatMessage struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id"`
}

type chatRequest struct {
	Messages []chatMessage `json:"messages"`
	raw      []byte
}

func (r chatRequest) last() chatMessage { return r.Messages[len(r.Messages)-1] }

// lastSaid is the last message that is no snapshot.
func (r chatRequest) lastSaid() chatMessage {
	i := len(r.Messages) - 1
	for policy.IsSnapshot(r.Messages[i].Content) {
		i--
	}
	return r.Messages[i]
}

// reply is what the endpoint answers.
type reply struct {
	status int // 0 is 200
	text   string
	parts  []string // more text, a delta each

	reasoning string
	calls     []chatCall
	finish    string
	after     string          // the seconds of Retry-After
	said      string          // with status
	tokens    int             // of the prompt; 0 is 10
	cut       bool            // the stream ends before the answer does
	hold      <-chan struct{} // wait in the middle of the answer
}

type chatCall struct{ id, name, arguments string }

func bash(id, command string) chatCall {
	b, _ := json.Marshal(map[string]string{"command": command})
	return chatCall{id, "bash", string(b)}
}

// endpoint is a model that answers by a function, and keeps what it received.
type endpoint struct {
	*httptest.Server
	mu       sync.Mutex
	requests []chatRequest
}

func newEndpoint(t *testing.T, answer func(n int, r chatRequest) reply) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // cancelled before it had arrived
		}
		request := chatRequest{raw: raw}
		if err := json.Unmarshal(raw, &request); err != nil {
			t.Errorf("the request is no JSON: %v", err)
		}
		e.mu.Lock()
		e.requests = append(e.requests, request)
		n := len(e.requests)
		e.mu.Unlock()
		a := answer(n, request)
		if a.status != 0 {
			if a.after != "" {
				w.Header().Set("Retry-After", a.after)
			}
			http.Error(w, fmt.Sprintf(`{"error":{"message":%q}}`, cmp.Or(a.said, "refused by the test")), a.status)
			return
		}
		stream(w, r, a)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

func stream(w http.ResponseWriter, r *http.Request, a reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta map[string]any, finish any) {
		b, _ := json.Marshal(map[string]any{
			"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		})
		fmt.Fprintf(w, "data: %s\n\n", b)
		w.(http.Flusher).Flush()
	}
	if a.cut && a.text == "" {
		return // an empty stream
	}
	send(map[string]any{"role": "assistant", "content": a.text}, nil)
	if a.reasoning != "" {
		send(map[string]any{"reasoning_content": a.reasoning}, nil)
	}
	for _, p := range a.parts {
		send(map[string]any{"content": p}, nil)
	}
	if a.cut {
		return
	}
	if a.hold != nil {
		select {
		case <-a.hold:
		case <-r.Context().Done():
			return
		}
	}
	for i, c := range a.calls {
		send(map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments},
		}}}, nil)
	}
	finish := a.finish
	switch {
	case finish != "":
	case len(a.calls) > 0:
		finish = "tool_calls"
	default:
		finish = "stop"
	}
	send(map[string]any{}, finish)
	fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":2}}`+"\n\n", cmp.Or(a.tokens, 10))
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (e *endpoint) seen() []chatRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

const (
	testUID         = "0b9f7e0e-1111-4222-8333-444455556666"
	testIncarnation = "a1b2c"
)

// session is a running agent with its two supervisors.
type session struct {
	*Agent
	t       *testing.T
	options Options
	model   *endpoint
	ro, rw  *supervisortest.Supervisor
	stop    func() error // ends the agent and its supervisors
	desired wire.Desired
	mayFail bool // its end is no failure of the test
}

// start runs an agent in fresh directories. Call is what calls do.
func start(t *testing.T, model *endpoint, call func(context.Context, wire.Start, func([]byte)) wire.Exited, change ...func(*session)) *session {
	t.Helper()
	dir := t.TempDir()
	s := &session{t: t, model: model, options: Options{
		SessionUID: testUID, Incarnation: testIncarnation, PodUID: "pod", Version: "test",
		Containers: []string{wire.ToolsRO, wire.ToolsRW}, LogDir: filepath.Join(dir, "log"), CtlDir: dir,
		KeyFile: filepath.Join(dir, "apiKey"), Stdout: io.Discard, Log: slog.New(slog.DiscardHandler),
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}}
	for _, c := range s.options.Containers {
		if err := os.Mkdir(filepath.Join(dir, c), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.ro = &supervisortest.Supervisor{Dir: filepath.Join(dir, wire.ToolsRO), Container: wire.ToolsRO, Call: call}
	s.rw = &supervisortest.Supervisor{Dir: filepath.Join(dir, wire.ToolsRW), Container: wire.ToolsRW, Call: call}
	s.desired = wire.Desired{
		Wire: wire.Version, SessionUID: testUID, Incarnation: testIncarnation,
		Config: wire.Config{
			Session: "demo/fix", SystemPrompt: "Be brief.", Workspace: "/workspace",
			Model: wire.Model{Provider: "OpenAIChat", BaseURL: model.URL + "/v1", Name: "m"},
		},
		Stamp: policy.Stamp{SessionUID: testUID, ClassUID: "class", ClassCreated: time.Unix(1000, 0).UTC(), ClassGeneration: 1},
	}
	for _, c := range change {
		c(s)
	}
	s.boot()
	return s
}

// boot starts an agent on the directories of the last one.
func (s *session) boot() {
	s.t.Helper()
	a, err := New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Agent = a
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	tools, cancelTools := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var wg, wgTools sync.WaitGroup
	var runErr error
	wg.Go(func() { runErr = a.Run(ctx) })
	for _, sup := range []*supervisortest.Supervisor{s.ro, s.rw} {
		wgTools.Go(func() { _ = sup.Run(tools) })
	}
	s.stop = sync.OnceValue(func() error { // the tools are there longer
		cancel()
		wg.Wait()
		cancelTools()
		wgTools.Wait()
		return runErr
	})
	s.t.Cleanup(func() {
		if s.stop() != nil && !s.mayFail {
			s.t.Errorf("the agent ended with %v", runErr)
		}
	})
}

// switchTo pushes a mode with the next generation and waits until it is applied.
func (s *session) switchTo(m policy.Mode) wire.Observed {
	s.t.Helper()
	s.push(m)
	o := s.await(fmt.Sprintf("%s is applied", m), func(o wire.Observed) bool {
		return o.Applied != nil && o.Applied.Stamp == s.desired.Stamp
	})
	if len(o.Unconfirmed) != 0 {
		s.t.Errorf("%s is applied, and yet %v are called unconfirmed", m, o.Unconfirmed)
	}
	return o
}

// push pushes a mode with the next generation.
func (s *session) push(m policy.Mode) (wire.Observed, bool) {
	s.t.Helper()
	s.desired.Policy = string(policy.Encode(policy.Policy{Mode: m, Ceiling: policy.Unbounded}).Bytes)
	s.desired.Stamp.SessionGeneration++
	o, applied, err := s.SetDesired(s.t.Context(), s.desired)
	if err != nil {
		s.t.Fatal(err)
	}
	return o, applied
}

// say sends a message and waits until it is answered.
func (s *session) say(uid, content string) wire.MessageStatus {
	s.t.Helper()
	s.send(uid, content)
	return s.answered(uid)
}

func (s *session) send(uid, content string) {
	s.t.Helper()
	s.desired.Messages = append(s.desired.Messages, wire.Message{UID: uid, Author: "alice", Content: content})
	if _, _, err := s.SetDesired(s.t.Context(), s.desired); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) answered(uid string) wire.MessageStatus {
	s.t.Helper()
	var status wire.MessageStatus
	s.await("message "+uid+" is answered", func(o wire.Observed) bool {
		i := slices.IndexFunc(o.Messages, func(m wire.MessageStatus) bool { return m.UID == uid })
		if i >= 0 {
			status = o.Messages[i]
		}
		return i >= 0 && status.State == wire.Answered
	})
	return status
}

// patience is how long anything may take.
var patience = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("AGENT_TEST_PATIENCE")); err == nil {
		return d
	}
	return 2 * time.Minute
}()

// await polls until a condition holds.
func (s *session) await(what string, holds func(wire.Observed) bool) wire.Observed {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	after := uint64(0)
	for {
		o := s.Observed(ctx, after)
		if holds(o) {
			return o
		}
		if ctx.Err() != nil {
			s.t.Fatalf("never: %s; observed last: %+v", what, o)
		}
		after = o.Revision
	}
}

// events reads the log that is on disk.
func (s *session) events() []eventlog.Event {
	s.t.Helper()
	var all []eventlog.Event
	for e, err := range eventlog.Read(s.options.LogDir) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func payload[T any](t *testing.T, e eventlog.Event) T {
	t.Helper()
	var p T
	if err := e.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

func kinds(events []eventlog.Event) []eventlog.Type {
	var all []eventlog.Type
	for _, e := range events {
		all = append(all, e.Type)
	}
	return all
}

// awaitRequest waits until the n-th request has come.
func (e *endpoint) awaitRequest(n int) {
	for end := time.Now().Add(patience); len(e.seen()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			panic(fmt.Sprintf("%d requests came, want %d", len(e.seen()), n))
		}
	}
}
