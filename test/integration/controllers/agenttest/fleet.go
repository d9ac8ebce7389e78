// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/agentsession-dev/operator/internal/wire"
)

// Fleet is many agents behind one address. Each has its own certificate and is asked for
// by the name in it.
type Fleet struct {
	// Connections counts those that are open now.
	Connections atomic.Int64
	// Pushes counts all desired states that arrived.
	Pushes atomic.Int64

	server *http.Server
	mu     sync.Mutex
	agents map[string]*member // by server name
}

type member struct {
	agent   *Agent
	handler http.Handler
	tls     *tls.Config
}

// Serve answers on l until Stop.
func (f *Fleet) Serve(l net.Listener) error {
	f.agents = map[string]*member{}
	f.server = &http.Server{
		Handler: http.HandlerFunc(f.serve),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if m := f.member(h.ServerName); m != nil {
				return m.tls, nil
			}
			return nil, fmt.Errorf("there is no agent %s", h.ServerName)
		}},
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				f.Connections.Add(1)
			case http.StateClosed, http.StateHijacked:
				f.Connections.Add(-1)
			case http.StateActive, http.StateIdle:
			}
		},
	}
	return f.server.ServeTLS(l, "", "")
}

// Stop ends all agents.
func (f *Fleet) Stop() { _ = f.server.Close() }

// Add adds an agent with the files of its link Secret.
func (f *Fleet) Add(id Identity, files map[string][]byte) (*Agent, error) {
	config, err := serverTLS(files)
	if err != nil {
		return nil, err
	}
	a := newAgent(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents[wire.ServerName(id.SessionUID, id.Incarnation)] = &member{a, a.handler(), config}
	return a, nil
}

func (f *Fleet) member(name string) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agents[name]
}

func (f *Fleet) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		f.Pushes.Add(1)
	}
	f.member(r.TLS.ServerName).handler.ServeHTTP(w, r)
}
