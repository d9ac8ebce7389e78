// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// collector takes OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	spans  []*tracev1.Span
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.URL.Path, r.Header.Get("Content-Type"), err)
		}
		// Strictly by the protocol's own definition: an unknown name or a wrong type is an error. Identities,
		// which OTLP has in hex, come out as other bytes, but as many and as different.
		var data tracev1.TracesData
		if err := protojson.Unmarshal(body, &data); err != nil {
			t.Errorf("no OTLP: %v: %s", err, body)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies = append(c.bodies, string(body))
		for _, r := range data.ResourceSpans {
			for _, s := range r.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// text is a span's attribute as text.
func text(s *tracev1.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			b, _ := protojson.Marshal(a.Value)
			var value map[string]any
			_ = json.Unmarshal(b, &value)
			for _, v := range value {
				if s, ok := v.(string); ok {
					return s
				}
			}
			return string(b)
		}
	}
	return ""
}

func (c *collector) named(name string) (found []*tracev1.Span) {
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// Whoever watches sees a turn, its requests and its calls, as one trace, and not a word of what was
// said.
func TestTracesTellOfATurnAndNotWhatWasSaid(t *testing.T) {
	c := newCollector(t)
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		switch n {
		case 1:
			return reply{status: 503}
		case 2:
			return reply{text: "spoken-words", calls: []chatCall{bash("call-1", "echo command-words"), {"call-2", "no_such_tool", "{}"}}}
		}
		return reply{text: "spoken-words", tokens: 77}
	})
	s := start(t, model, func(_ context.Context, _ wire.Start, out func([]byte)) wire.Exited {
		out([]byte("output-words"))
		return wire.Exited{Cause: wire.Finished, Status: 1}
	}, func(s *session) { s.desired.Config.TraceEndpoint = c.URL + "/" })
	s.switchTo(policy.WorkspaceWrite)
	s.say("m1", "prompt-words")
	if err := s.stop(); err != nil { // what is left is sent at the end
		t.Fatal(err)
	}

	turns, chats := c.named("invoke_agent"), c.named("chat m")
	if len(turns) != 1 || len(chats) != 3 || len(c.spans) != 6 {
		t.Fatalf("%d turns, %d requests and %d spans in all, want 1, 3 and 6", len(turns), len(chats), len(c.spans))
	}
	for _, span := range c.spans {
		if span.Name != "invoke_agent" && (string(span.ParentSpanId) != string(turns[0].SpanId) || string(span.TraceId) != string(turns[0].TraceId)) {
			t.Errorf("%s is not within the turn", span.Name)
		}
		if span.EndTimeUnixNano < span.StartTimeUnixNano || span.StartTimeUnixNano == 0 || text(span, "gen_ai.conversation.id") != testUID {
			t.Errorf("%s: from %d to %d, conversation %q", span.Name, span.StartTimeUnixNano, span.EndTimeUnixNano, text(span, "gen_ai.conversation.id"))
		}
	}
	slices.SortFunc(chats, func(a, b *tracev1.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, want := range []struct {
		span       *tracev1.Span
		key, value string
	}{
		{turns[0], "gen_ai.operation.name", "invoke_agent"}, {turns[0], "agentsession.turn.end", ReasonCompleted},
		{chats[0], "error.type", "ModelServer"}, {chats[0], "gen_ai.operation.name", "chat"},
		{chats[2], "gen_ai.usage.input_tokens", "77"}, {chats[2], "gen_ai.usage.output_tokens", "2"}, {chats[2], "gen_ai.request.model", "m"},
		{chats[2], "gen_ai.provider.name", "openai"}, {chats[2], "error.type", ""},
		{c.named("execute_tool bash")[0], "gen_ai.tool.name", "bash"}, {c.named("execute_tool bash")[0], "gen_ai.tool.call.id", "1.1.1"},
		{c.named("execute_tool bash")[0], "agentsession.sandbox.mode", "workspace-write"},
		{c.named("execute_tool no_such_tool")[0], "error.type", failureResult},
	} {
		if got := text(want.span, want.key); got != want.value {
			t.Errorf("%s has %s=%q, want %q", want.span.Name, want.key, got, want.value)
		}
	}
	for _, words := range []string{"spoken-words", "command-words", "output-words", "prompt-words", "Be brief."} {
		if strings.Contains(strings.Join(c.bodies, ""), words) {
			t.Errorf("%q was told", words)
		}
	}
}

// A collector that takes no answer holds up neither a turn nor the agent's end.
func TestACollectorInTroubleHoldsNobodyUp(t *testing.T) {
	release := make(chan struct{})
	reached := make(chan struct{}, 1)
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case reached <- struct{}{}:
		default:
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer stuck.Close()
	defer close(release)
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "done"} })
	s := start(t, model, nil, func(s *session) { s.desired.Config.TraceEndpoint = stuck.URL })
	s.switchTo(policy.ReadOnly)
	for _, uid := range []string{"m1", "m2", "m3"} {
		if got := s.say(uid, "Hello?"); got.Reply != "done" {
			t.Errorf("answered with %q", got.Reply)
		}
	}
	s.desired.Config.TraceEndpoint = "" // at once, and without waiting
	s.push(policy.ReadOnly)
	<-reached
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// Nobody is told where the class names nobody.
func TestNoEndpointNoTraces(t *testing.T) {
	c := newCollector(t)
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "done"} })
	s := start(t, model, nil)
	s.switchTo(policy.ReadOnly)
	s.say("m1", "Hello?")
	s.desired.Config.TraceEndpoint = c.URL
	s.push(policy.ReadOnly)
	s.say("m2", "Hello?")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(c.named("invoke_agent")); n != 1 {
		t.Errorf("%d turns were told, want the one after an endpoint was named", n)
	}
}
