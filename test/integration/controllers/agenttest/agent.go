// SPDX-License-Identifier: Apache-2.0

// Package agenttest is the agent's end of the link for tests of the controller: it
// listens with real certificates, speaks the real wire and accepts or refuses
// policies by the real rule, but has neither log nor tools. It decides nothing that
// a test does not tell it to.
package agenttest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Agent is one agent. Its zero behaviour: it applies what it is given at once.
type Agent struct {
	Addr string

	listener net.Listener
	server   *http.Server

	mu        sync.Mutex
	changed   chan struct{}
	observed  wire.Observed
	inForce   policy.Policy // accepted
	enforced  policy.Policy // applied
	conns     map[net.Conn]bool
	pushes    []wire.Desired
	protos    []string
	draining  bool
	pending   *wire.Applied
	misdirect bool
	held      chan struct{} // pushes wait until it is closed
	onPush    func(wire.Desired)
	restless  bool // it never settles
}

// Identity is whose agent it is.
type Identity struct{ SessionUID, Incarnation, PodUID string }

// Start serves an agent on the loopback with the files of its link Secret.
func Start(t testing.TB, id Identity, files map[string][]byte) *Agent {
	t.Helper()
	config, err := serverTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(id)
	a.Addr, a.listener = l.Addr().String(), l
	a.server = &http.Server{Handler: a.handler(), TLSConfig: config, ConnState: a.track}
	go a.server.ServeTLS(l, "", "")
	t.Cleanup(a.Stop)
	return a
}

func newAgent(id Identity) *Agent {
	full := wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7, Layers: []string{"landlock", "seccomp"}}
	return &Agent{
		changed: make(chan struct{}),
		conns:   map[net.Conn]bool{},
		observed: wire.Observed{
			Wire: wire.Version, SessionUID: id.SessionUID, Incarnation: id.Incarnation, PodUID: id.PodUID,
			Boot: 1, Revision: 1, Activity: wire.Activity{State: wire.Idle},
			Containers: []wire.Container{
				{Name: wire.ToolsRO, Connected: true, Report: full},
				{Name: wire.ToolsRW, Connected: true, Report: full},
			},
		},
	}
}

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+wire.DesiredPath, a.put)
	mux.HandleFunc("GET "+wire.ObservedPath, a.get)
	return mux
}

// serverTLS reads the files of a link Secret.
func serverTLS(files map[string][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(files[wire.TLSCertFile], files[wire.TLSKeyFile])
	if err != nil {
		return nil, fmt.Errorf("reading the agent's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files[wire.TLSCAFile]) {
		return nil, fmt.Errorf("%s holds no certificate", wire.TLSCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2", "http/1.1"},
		VerifyConnection: func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(wire.ClientName) },
	}, nil
}

// Stop ends the agent and its connections.
func (a *Agent) Stop() {
	a.listener.Close()
	a.server.Close()
}

// Update changes what the agent says of itself, as one revision.
func (a *Agent) Update(change func(*wire.Observed)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.observed)
	a.changedLocked()
}

// Drain makes the agent answer 202 to the next policies, until Confirm.
func (a *Agent) Drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
}

// Confirm applies what was drained.
func (a *Agent) Confirm(killed int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = false
	a.observed.Unconfirmed = nil
	if a.pending != nil {
		a.pending.Killed = killed
		a.observed.Applied, a.pending = a.pending, nil
		a.enforced = a.inForce
	}
	a.changedLocked()
}

// Hold leaves pushes without an answer until the function that it returns is called.
func (a *Agent) Hold() (release func()) {
	held := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = held
	return sync.OnceFunc(func() { close(held) })
}

// Enforced returns the policy that is applied and what it was made from.
func (a *Agent) Enforced() (policy.Policy, policy.Stamp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.observed.Applied == nil {
		return policy.Policy{}, policy.Stamp{}
	}
	return a.enforced, a.observed.Applied.Stamp
}

// Hangup ends all connections; new ones are answered.
func (a *Agent) Hangup() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		_ = c.Close()
	}
}

func (a *Agent) track(c net.Conn, s http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s {
	case http.StateNew:
		a.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(a.conns, c)
	case http.StateActive, http.StateIdle:
	}
}

// NeverSettle makes the agent ignore that its pod is about to go.
func (a *Agent) NeverSettle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restless = true
}

// OnPush is called with every desired state before it is looked at. It may take its time.
func (a *Agent) OnPush(f func(wire.Desired)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onPush = f
}

// Misdirect makes the agent answer 421.
func (a *Agent) Misdirect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.misdirect = true
}

// Force puts a stamp and a policy in force, as an operator with newer objects would have.
func (a *Agent) Force(stamp policy.Stamp, p policy.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inForce, a.enforced = p, p
	a.observed.Applied = &wire.Applied{Digest: policy.Encode(p).Digest, Stamp: stamp, Time: time.Now()}
	a.changedLocked()
}

// Pushes returns every desired state that was pushed.
func (a *Agent) Pushes() []wire.Desired {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.pushes)
}

// Protocols returns the HTTP versions that were spoken.
func (a *Agent) Protocols() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.protos)
}

func (a *Agent) changedLocked() {
	a.observed.Revision++
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *Agent) put(w http.ResponseWriter, r *http.Request) {
	var d wire.Desired
	if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
		answer(w, http.StatusBadRequest, wire.Refusal{Error: err.Error()})
		return
	}
	doc, err := policy.Decode([]byte(d.Policy))
	if err != nil {
		answer(w, http.StatusBadRequest, wire.Refusal{Error: err.Error()})
		return
	}
	a.mu.Lock()
	held, onPush := a.held, a.onPush
	a.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	if onPush != nil {
		onPush(d)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pushes, a.protos = append(a.pushes, d), append(a.protos, r.Proto)
	if a.misdirect || d.SessionUID != a.observed.SessionUID || d.Incarnation != a.observed.Incarnation {
		answer(w, http.StatusMisdirectedRequest, wire.Refusal{Error: "another session"})
		return
	}
	var inForce *policy.Stamp
	if a.observed.Applied != nil {
		inForce = &a.observed.Applied.Stamp
	}
	if why := policy.Accept(inForce, a.inForce, d.Stamp, doc.Policy, d.Replaces); why != "" {
		answer(w, http.StatusConflict, wire.Refusal{Error: why, Stamp: inForce})
		return
	}
	status := a.applyLocked(d, doc)
	if (d.Stop || d.Suspend) && !a.observed.Settled && !a.restless {
		a.observed.Settled = true
		a.observed.Log.Seq++
		a.changedLocked()
	}
	answer(w, status, a.observed)
}

func (a *Agent) applyLocked(d wire.Desired, doc policy.Document) int {
	now := &a.observed
	before := len(now.Messages)
	for _, m := range d.Messages {
		if !slices.ContainsFunc(now.Messages, func(s wire.MessageStatus) bool { return s.UID == m.UID }) {
			now.Messages = append(now.Messages, wire.MessageStatus{UID: m.UID, State: wire.Delivered, Sequence: uint64(10 + len(now.Messages))})
		}
	}
	same := now.Applied != nil && now.Applied.Digest == doc.Digest && now.Applied.Stamp == d.Stamp
	if same {
		if len(now.Messages) != before {
			a.changedLocked()
		}
		return http.StatusOK
	}
	applied := &wire.Applied{Digest: doc.Digest, Stamp: d.Stamp, Seq: 3, SnapshotSeq: 4, Time: time.Now()}
	a.inForce = doc.Policy
	if a.draining {
		a.pending = applied
		now.Unconfirmed = []string{wire.ToolsRW}
		a.changedLocked()
		return http.StatusAccepted
	}
	now.Applied, a.enforced = applied, doc.Policy
	a.changedLocked()
	return http.StatusOK
}

func (a *Agent) get(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	timeout := time.After(wire.PollTimeout)
	for {
		a.mu.Lock()
		if a.observed.Revision != after {
			defer a.mu.Unlock()
			answer(w, http.StatusOK, a.observed)
			return
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-timeout:
			after = 0 // answer what there is
		}
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}
