// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// peer is the HTTP client of one agent, over one connection.
type peer struct {
	endpoint  Endpoint
	transport *http.Transport

	mu     sync.Mutex
	conn   net.Conn // the newest
	closed bool
}

func newPeer(e Endpoint, o Options) *peer {
	// HTTP/2 lets a push overtake the poll that it interrupts in the same connection.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	p := &peer{endpoint: e}
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := o.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return c, p.keep(c)
		},
		Protocols: &protocols,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			ServerName: wire.ServerName(e.SessionUID, e.Incarnation),
			RootCAs:    o.Credentials.Pool(e.Authority),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return o.Credentials.Client(e.Authority)
			},
		},
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true, // a body stays as large as it looks
	}
	return p
}

// keep remembers a connection, so that close can end it.
func (p *peer) keep(c net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return net.ErrClosed
	}
	p.conn = c
	return nil
}

// close ends the connection. The transport closes those alone that it has already
// noticed to be idle, and a request that was just given up may not be among them.
func (p *peer) close() {
	p.transport.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

func (p *peer) put(ctx context.Context, body []byte) (*wire.Observed, error) {
	return p.do(ctx, http.MethodPut, wire.DesiredPath, body)
}

func (p *peer) get(ctx context.Context, after uint64) (*wire.Observed, error) {
	return p.do(ctx, http.MethodGet, wire.ObservedPath+"?after="+strconv.FormatUint(after, 10), nil)
}

func (p *peer) do(ctx context.Context, method, path string, body []byte) (*wire.Observed, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+p.endpoint.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	// The transport alone follows no redirect: an agent must not send the operator elsewhere.
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxObserved+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > wire.MaxObserved:
		return nil, &answerError{kindInvalid, fmt.Sprintf("the agent's answer has more than %d bytes", wire.MaxObserved)}
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusAccepted:
		return p.observed(answer)
	default:
		return nil, refusalOf(resp.StatusCode, answer)
	}
}

// observed reads an observed state and drops it if it is another agent's: pod
// addresses are used again.
func (p *peer) observed(b []byte) (*wire.Observed, error) {
	var o wire.Observed
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, &answerError{kindInvalid, "the agent's answer is not an observed state: " + cut(err.Error(), maxMessage)}
	}
	e := p.endpoint
	switch {
	case o.Wire != wire.Version:
		return nil, &answerError{kindInvalid, fmt.Sprintf("the agent speaks version %d of the wire, the operator %d", o.Wire, wire.Version)}
	case o.SessionUID != e.SessionUID, o.Incarnation != e.Incarnation, o.PodUID != e.PodUID:
		return nil, &answerError{kindMisdirected, "the answer came from the agent of another session or pod"}
	}
	bound(&o)
	return &o, nil
}

// conflictError is the answer to a desired state that was made from older objects.
type conflictError struct{ stamp *policy.Stamp }

func (e *conflictError) Error() string { return "the agent has a policy made from newer objects" }

// answerError is an answer that cannot be used. Its words are stable.
type answerError struct{ kind, text string }

func (e *answerError) Error() string { return e.text }

func refusalOf(status int, body []byte) error {
	var r wire.Refusal
	if err := json.Unmarshal(body, &r); err != nil {
		return &answerError{kindInvalid, fmt.Sprintf("the agent answered %d without saying why", status)}
	}
	switch {
	case status == http.StatusConflict && r.Stamp != nil:
		return &conflictError{r.Stamp}
	case status == http.StatusMisdirectedRequest:
		return &answerError{kindMisdirected, "the agent says that it belongs to another session or pod: " + cut(r.Error, maxMessage)}
	default:
		return &answerError{kindRefused, fmt.Sprintf("the agent refused with %d: %s", status, cut(r.Error, maxMessage))}
	}
}

// describe says why an exchange failed in words that stay the same while the cause
// does: no local port, no time.
func describe(err error) string {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.text
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		if op.Timeout() {
			return op.Op + ": no answer in time"
		}
		return cut(op.Op+": "+op.Err.Error(), maxMessage)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return cut(err.Error(), maxMessage)
}
