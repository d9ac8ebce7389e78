// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// behindTLS serves an endpoint with whatever certificate is in force.
func behindTLS(t *testing.T, e *endpoint, in *atomic.Pointer[tls.Certificate]) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(e.Config.Handler.ServeHTTP))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are wanted to fail
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*in.Load()}}, nil
	}}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// An endpoint whose authority is not known gets no request, and the session says what to do. A bundle that the
// class is given reaches a running session with its next request, and so does one that follows the
// endpoint's authority; the old one is not believed any more.
func TestACABundleReachesARunningSession(t *testing.T) {
	first, second := modeltest.NewRoot(t, "first root"), modeltest.NewRoot(t, "second root")
	model := newEndpoint(t, func(int, chatRequest) reply { return reply{text: "trusted"} })
	var certificate atomic.Pointer[tls.Certificate]
	certificate.Store(new(first.Serves(t)))
	server := behindTLS(t, model, &certificate)
	s := start(t, model, nil, func(s *session) { s.desired.Config.Model.BaseURL = server.URL + "/v1" })
	s.switchTo(policy.ReadOnly)

	refused := func(id, bundle, want string) {
		t.Helper()
		before := len(model.seen())
		s.desired.Config.Model.CABundle = bundle
		if got := s.say(id, "go"); got.Reason != "ModelFailed" || len(model.seen()) != before {
			t.Errorf("%s: the message is %+v after %d requests", id, got, len(model.seen())-before)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.observed.Problems; len(p) != 1 || p[0].Reason != wire.ModelUnavailable || !strings.Contains(p[0].Message, want) {
			t.Errorf("%s: problems are %+v, want one that says %q", id, p, want)
		}
	}
	answered := func(id, bundle string) {
		t.Helper()
		s.desired.Config.Model.CABundle = bundle
		if got := s.say(id, "go"); got.Reply != "trusted" {
			t.Errorf("%s: the message is %+v", id, got)
		}
	}

	refused("no bundle", "", "the class's model.caBundle")
	refused("another's", second.PEM, "is not trusted")
	refused("no PEM", "hello", "holds no certificate in PEM")
	answered("the right one", first.PEM)

	// The endpoint changes its authority: both are in the bundle for a time.
	answered("both", first.PEM+second.PEM)
	certificate.Store(new(second.Serves(t)))
	server.CloseClientConnections()
	answered("both, and the new one serves", first.PEM+second.PEM)
	answered("the new one", second.PEM)
	refused("the old one", first.PEM, "is not trusted")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}
