// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// An endpoint that is not there, or not what it should be, is told apart.
func testUnreachable(t *testing.T, w Wire) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	foreign := httptest.NewUnstartedServer(http.NotFoundHandler())
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the handshake that the test wants to fail
	foreign.StartTLS()
	t.Cleanup(foreign.Close)
	plain := Serve(t, Status(200, "text/plain", ""))
	hangUp := hangingUp(t)
	for name, tc := range map[string]struct {
		url  string
		kind model.Kind
		want string
	}{
		"connection refused":  {gone.URL, model.Refused, "cannot be reached"},
		"no such host":        {"http://model.invalid", model.Refused, "cannot be"},
		"unknown certificate": {foreign.URL, model.Refused, "CA bundle"},
		"no TLS there":        {"https" + strings.TrimPrefix(plain.URL, "http"), model.Refused, "http://"},
		"hangs up at once":    {hangUp, model.BrokenStream, "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.New(t, Config{BaseURL: tc.url, KeyFile: KeyFile(t)})
			e := WantError(t, Collect(t.Context(), p, mustPrepare(t, p, Request())), tc.kind)
			if !strings.Contains(e.Message, tc.want) || !strings.Contains(e.Message, tc.url) || !e.Retryable() {
				t.Errorf("error %q, want %q and the base URL in it, and that a retry may help", e.Message, tc.want)
			}
		})
	}
}

// hangingUp is an endpoint that closes each connection without a word.
func hangingUp(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.CopyN(io.Discard, c, 1)
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// A stream that breaks or stalls gives an error, never half an answer.
func testStreams(t *testing.T, w Wire) {
	whole := w.Stream(model.Answer{Content: "Hello", Finish: model.FinishToolCalls, ToolCalls: []model.ToolCall{{ID: "c", Name: "bash", Arguments: `{"a":1}`}}})
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		kind   model.Kind
	}{
		"empty":                        {Pieces(), model.BrokenStream},
		"ends too early":               {Pieces(whole[:len(whole)-1]...), model.BrokenStream},
		"cut":                          {Cut(whole[:2]...), model.BrokenStream},
		"cut in a chunk":               {Cut(whole[0], whole[1][:len(whole[1])/2]), model.BrokenStream},
		"stalls before the first byte": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, model.Timeout},
		"stalls in the middle": {func(rw http.ResponseWriter, r *http.Request) {
			Pieces(whole[:1]...)(rw, r)
			<-r.Context().Done()
		}, model.Timeout},
		"fails in the middle": {Pieces(whole[0], w.Failure("the engine died")), model.Server},
	} {
		t.Run(name, func(t *testing.T) {
			s := Serve(t, tc.answer)
			c := Config{BaseURL: s.URL}
			if tc.kind == model.Timeout {
				c.IdleTimeout = 50 * time.Millisecond
			}
			p := w.New(t, c)
			e := WantError(t, Collect(t.Context(), p, mustPrepare(t, p, Request())), tc.kind)
			if !e.Retryable() || tc.kind == model.Server && !strings.Contains(e.Error(), "the engine died") {
				t.Errorf("error %v, want what the endpoint said and that a retry may help", e)
			}
			if len(s.Got()) != 1 {
				t.Errorf("%d requests, want 1 (%v)", len(s.Got()), e)
			}
		})
	}
}

// The caller's cancel and break end the request at the endpoint too.
func testCaller(t *testing.T, w Wire) {
	for name, cancels := range map[string]bool{"cancel": true, "break": false} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			s := Serve(t, func(rw http.ResponseWriter, r *http.Request) {
				Pieces(w.Text("a"), w.Text("b"))(rw, r)
				<-r.Context().Done()
				close(ended)
			})
			p := w.New(t, Config{BaseURL: s.URL})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for d, err := range p.Send(ctx, mustPrepare(t, p, Request())) {
				last = err
				if err != nil || d.Content == "" {
					break
				}
				if !cancels {
					break
				}
				cancel()
			}
			if cancels && !errors.Is(last, context.Canceled) {
				t.Errorf("after the cancel: %v, want context.Canceled", last)
			}
			if _, ok := errors.AsType[*model.Error](last); ok {
				t.Errorf("the caller's own cancel came back as trouble of the endpoint: %v", last)
			}
			<-ended
		})
	}
	t.Run("a request that cannot be rendered", func(t *testing.T) {
		p := w.New(t, Config{BaseURL: "http://127.0.0.1:1", KeyFile: filepath.Join(t.TempDir(), "none")})
		for name, r := range map[string]model.Request{
			"no model":   {Messages: Request().Messages},
			"a bad role": {Model: "m", Messages: []model.Message{{Role: "system", Content: "x"}}},
			"a bad tool": {Model: "m", Tools: []model.ToolSpec{{Name: "x", Schema: []byte("{")}}},
			"an orphan":  {Model: "m", Messages: []model.Message{{Role: model.Tool, Content: "x"}}},
		} {
			if _, err := p.Prepare(r); err == nil {
				t.Errorf("Prepare() with %s succeeded", name)
			}
		}
	})
}
