// SPDX-License-Identifier: Apache-2.0

package linkserver_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsession-dev/operator/internal/agent/linkserver"
	"github.com/agentsession-dev/operator/internal/agent/linkserver/linktest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uid, incarnation = "uid", "inc"

// handler accepts everything and remembers it.
type handler struct {
	mu       sync.Mutex
	pushes   []wire.Desired
	applied  bool
	err      error
	observed wire.Observed
	waits    bool // polls wait for ever
}

func (h *handler) SetDesired(_ context.Context, d wire.Desired) (wire.Observed, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushes = append(h.pushes, d)
	return h.observed, h.applied, h.err
}

func (h *handler) Heard() {}

func (h *handler) Observed(ctx context.Context, after uint64) wire.Observed {
	if h.waits {
		<-ctx.Done()
	}
	o := h.observed
	o.Revision = after + 1
	return o
}

func serve(t *testing.T, h linkserver.Handler) (*linktest.CA, string) {
	t.Helper()
	ca, dir := linktest.NewCA(t), t.TempDir()
	ca.WriteSecret(t, dir, uid, incarnation)
	id, err := linkserver.LoadIdentity(dir, ca.Hash(), uid, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- linkserver.Serve(ctx, l, id, h, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ca, l.Addr().String()
}

func operator(t *testing.T, ca *linktest.CA, addr string) *linktest.Client {
	return ca.Client(t, addr, uid, incarnation, wire.ClientName, x509.ExtKeyUsageClientAuth)
}

// Only the operator is heard: its CA, its name, its usage. Nothing of others reaches the handler.
func TestOnlyTheOperatorIsHeard(t *testing.T) {
	h := &handler{applied: true}
	ca, addr := serve(t, h)
	push := wire.Desired{Wire: wire.Version, SessionUID: uid, Incarnation: incarnation}
	for name, c := range map[string]*linktest.Client{
		"another agent's certificate": ca.Client(t, addr, uid, incarnation, wire.ServerName("x", "y"), x509.ExtKeyUsageServerAuth),
		"the name with another usage": ca.Client(t, addr, uid, incarnation, wire.ClientName, x509.ExtKeyUsageServerAuth),
		"the usage with another name": ca.Client(t, addr, uid, incarnation, "someone.agentsession.dev", x509.ExtKeyUsageClientAuth),
	} {
		if status, body, err := c.Put(t.Context(), push); err == nil {
			t.Errorf("%s was answered %d %s", name, status, body)
		}
	}
	foreign := linktest.NewCA(t).Client(t, addr, uid, incarnation, wire.ClientName, x509.ExtKeyUsageClientAuth)
	foreign.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	if status, body, err := foreign.Put(t.Context(), push); err == nil {
		t.Errorf("the certificate of a foreign CA was answered %d %s", status, body)
	}
	if len(h.pushes) != 0 {
		t.Errorf("%d pushes reached the handler", len(h.pushes))
	}
	if status, body, err := operator(t, ca, addr).Put(t.Context(), push); err != nil || status != http.StatusOK {
		t.Errorf("the operator was answered %d %s, %v", status, body, err)
	}
}

// Peers that show nothing do not keep the operator out.
func TestACrowdDoesNotKeepTheOperatorOut(t *testing.T) {
	ca, addr := serve(t, &handler{applied: true})
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	push := wire.Desired{Wire: wire.Version, SessionUID: uid, Incarnation: incarnation}
	if status, _, err := operator(t, ca, addr).Put(t.Context(), push); err != nil || status != http.StatusOK {
		t.Errorf("the operator was answered %d, %v", status, err)
	}
}

// Each answer has its status and a body that says why.
func TestStatuses(t *testing.T) {
	h := &handler{observed: wire.Observed{Wire: wire.Version}}
	ca, addr := serve(t, h)
	c := operator(t, ca, addr)
	const right = `{"wire":1,"sessionUID":"uid","incarnation":"inc"}`
	for name, tc := range map[string]struct {
		method, path, body string
		handler            error
		applied            bool
		want               int
	}{
		"applied":             {"PUT", wire.DesiredPath, right, nil, true, 200},
		"draining":            {"PUT", wire.DesiredPath, right, nil, false, 202},
		"refused":             {"PUT", wire.DesiredPath, right, &linkserver.StatusError{Status: 409, Refusal: wire.Refusal{Error: "older"}}, false, 409},
		"another session":     {"PUT", wire.DesiredPath, strings.Replace(right, `"uid"`, `"x"`, 1), nil, true, 421},
		"another incarnation": {"PUT", wire.DesiredPath, strings.Replace(right, `"inc"`, `"x"`, 1), nil, true, 421},
		"a later wire":        {"PUT", wire.DesiredPath, `{"wire":2,"sessionUID":"uid","incarnation":"inc","messages":"in another form"}`, nil, true, 421},
		"no JSON":             {"PUT", wire.DesiredPath, "hello", nil, true, 400},
		"a wrong type":        {"PUT", wire.DesiredPath, strings.Replace(right, "}", `,"messages":3}`, 1), nil, true, 400},
		"too large":           {"PUT", wire.DesiredPath, strings.Repeat(" ", wire.MaxDesired+1), nil, true, 413},
		"a poll":              {"GET", wire.ObservedPath + "?after=7", "", nil, true, 200},
		"a wrong revision":    {"GET", wire.ObservedPath + "?after=x", "", nil, true, 400},
		"another path":        {"GET", "/", "", nil, true, 404},
		"another method":      {"POST", wire.DesiredPath, right, nil, true, 405},
	} {
		t.Run(name, func(t *testing.T) {
			h.err, h.applied = tc.handler, tc.applied
			status, body, err := c.Do(t.Context(), tc.method, tc.path, []byte(tc.body))
			if err != nil || status != tc.want {
				t.Fatalf("answered %d %s, %v; want %d", status, body, err, tc.want)
			}
			var refusal wire.Refusal
			if status >= 400 && status != 404 && status != 405 && (json.Unmarshal(body, &refusal) != nil || refusal.Error == "") {
				t.Errorf("the body %q does not say why", body)
			}
			if name == "a poll" && !bytes.Contains(body, []byte(`"revision":8`)) {
				t.Errorf("the poll was answered %s", body)
			}
		})
	}
}

// A state that is larger than the other side reads loses its oldest replies, not itself.
func TestALargeStateLosesItsOldestReplies(t *testing.T) {
	h := &handler{}
	for range 64 { // each control character takes six bytes in JSON
		h.observed.Messages = append(h.observed.Messages, wire.MessageStatus{UID: "u", Reply: strings.Repeat("\x01", wire.MaxReply)})
	}
	ca, addr := serve(t, h)
	_, body, err := operator(t, ca, addr).Do(t.Context(), "GET", wire.ObservedPath, nil)
	if err != nil || len(body) > wire.MaxObserved {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	var o wire.Observed
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Messages) != 64 || o.Messages[0].Reply != "" || len(o.Messages[63].Reply) != wire.MaxReply {
		t.Errorf("%d messages, replies of %d and %d bytes", len(o.Messages), len(o.Messages[0].Reply), len(o.Messages[63].Reply))
	}
}

// A Secret whose CA is not the one of the pod spec is refused before anything listens.
func TestAChangedSecretIsRefused(t *testing.T) {
	ca, dir := linktest.NewCA(t), t.TempDir()
	linktest.NewCA(t).WriteSecret(t, dir, uid, incarnation)
	if _, err := linkserver.LoadIdentity(dir, ca.Hash(), uid, incarnation); err == nil || !strings.Contains(err.Error(), "delete the pod") {
		t.Errorf("LoadIdentity() = %v", err)
	}
}

// A push overtakes the poll that waits, and giving a poll up does not cost the connection.
func TestPushesAndPollsShareOneConnection(t *testing.T) {
	h := &handler{applied: true, waits: true}
	ca, addr := serve(t, h)
	c := operator(t, ca, addr)
	push := wire.Desired{Wire: wire.Version, SessionUID: uid, Incarnation: incarnation}
	for i := range 10 {
		polling, giveUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, _, err := c.Do(polling, http.MethodGet, wire.ObservedPath+"?after=1", nil)
			gone <- err
		}()
		var reused bool
		traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		if status, body, err := c.Put(traced, push); err != nil || status != http.StatusOK {
			t.Fatalf("a push beside a poll was answered %d %s, %v", status, body, err)
		}
		if i > 0 && !reused {
			t.Error("a push needed another connection")
		}
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the poll ended with %v", err)
		}
	}
}
