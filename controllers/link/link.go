// SPDX-License-Identifier: Apache-2.0

// Package link speaks with the agents: it carries what the controller wants to
// each of them and brings back what each says of itself. It decides who is to be
// believed and how long to wait, and refuses to know what a session is for: it
// reads no cluster and writes no status.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// answerWithin is how long Set waits for an answer. An agent that has to end
	// processes first answers within 80 ms that it does.
	answerWithin = 100 * time.Millisecond
	// unreachableAfter is how long exchanges must have failed before the agent counts
	// as unreachable: shorter than a restart of its container would be noise.
	unreachableAfter = 30 * time.Second

	pushTimeout = 10 * time.Second
	firstRetry  = 50 * time.Millisecond
	lastRetry   = 5 * time.Second
	// lostRetry is how often an agent is tried that counts as unreachable. What the kubelet
	// says of its pod, and every change of what is wanted, has it tried at once.
	lostRetry = 30 * time.Second
)

// Endpoint is one incarnation of one session's agent.
type Endpoint struct {
	Session     types.NamespacedName
	SessionUID  string
	Incarnation string
	PodUID      string
	Authority   string // hash of the root that the agent believes
	Address     string // host:port
	// Pulse changes with whatever the kubelet says of the pod's containers. An agent at
	// rest is looked at when it does.
	Pulse uint64
}

// same reports whether both are one agent.
func (e Endpoint) same(o Endpoint) bool {
	e.Pulse, o.Pulse = 0, 0
	return e == o
}

// Observation is what is known of an agent.
type Observation struct {
	// Observed is what the agent said last; nil until it has answered. It is bounded,
	// its identity is checked, and nobody changes it. Its words stay untrusted.
	Observed *wire.Observed
	// Refused is the stamp in force where the agent did not take the desired state,
	// because it was made from older objects.
	Refused *policy.Stamp
	// Trouble says why the last exchange failed, in words that stay the same while
	// the cause does; "" after an answer.
	Trouble string
	// Unreachable is set once exchanges have failed for 30 s.
	Unreachable bool
}

// Credentials are what the operator shows and whom it trusts.
type Credentials interface {
	// Both are for an agent that believes the root with a hash.
	Client(authority string) (*tls.Certificate, error)
	Pool(authority string) *x509.CertPool
}

// Options configure Links.
type Options struct {
	Credentials Credentials
	// Wake is called when an agent has said something new that nobody was waiting for.
	// It must not block for long.
	Wake func(session types.NamespacedName)
	// Dial connects to an agent; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Failed is told of each exchange that failed, and in which of a few ways; nil is nobody.
	Failed func(kind string)
	// Linger is how long the connection to an agent that became idle is kept, Visit how
	// often, roughly, an agent at rest is looked at; 0 are 10 minutes.
	Linger, Visit time.Duration
	// Keep is how many idle agents may have a connection; 0 are 256.
	Keep int

	held *atomic.Int64
	kept *kept
}

// Links holds one link a session.
type Links struct {
	ctx     context.Context // ends all links
	options Options
	held    atomic.Int64 // links that are not at rest

	mu    sync.Mutex
	links map[types.NamespacedName]*link
}

// New makes an empty set of links. They end with ctx.
func New(ctx context.Context, o Options) *Links {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	if o.Failed == nil {
		o.Failed = func(string) {}
	}
	o.Linger, o.Visit = cmp.Or(o.Linger, lingerFor), cmp.Or(o.Visit, visitEvery)
	l := &Links{ctx: ctx, options: o, links: map[types.NamespacedName]*link{}}
	l.options.held, l.options.kept = &l.held, &kept{most: cmp.Or(o.Keep, keepMost)}
	return l
}

// Held counts the agents that are being listened to; the others are at rest.
func (l *Links) Held() int { return int(l.held.Load()) }

// Set says what is wanted of an agent and returns what is known of it. It never
// dials: it stores, wakes the link's goroutine and waits 100 ms at most for an
// answer to exactly this desired state. fresh tells whether there is one. If not,
// the session is woken when it arrives.
func (l *Links) Set(ctx context.Context, e Endpoint, d wire.Desired) (o Observation, fresh bool) {
	body, err := json.Marshal(d)
	if err != nil {
		return Observation{Trouble: fmt.Sprintf("the desired state cannot be encoded: %v", err)}, false
	}
	if len(body) > wire.MaxDesired {
		return Observation{Trouble: fmt.Sprintf("the desired state has %d bytes, more than the %d that an agent takes", len(body), wire.MaxDesired)}, false
	}
	return l.to(e).set(ctx, body, goalOf(d), e.Pulse)
}

// Last returns what is known of an agent without wanting anything of it.
func (l *Links) Last(e Endpoint) Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.links[e.Session]
	if k == nil || !k.endpoint.same(e) {
		return Observation{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.observationLocked()
}

// Forget ends the link of a session.
func (l *Links) Forget(session types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.links[session]; k != nil {
		k.end()
		delete(l.links, session)
	}
}

// to returns the link to an endpoint; one to an earlier endpoint of the session ends.
func (l *Links) to(e Endpoint) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.links[e.Session]
	if k != nil && k.endpoint.same(e) {
		return k
	}
	if k != nil {
		k.end()
	}
	ctx, cancel := context.WithCancel(l.ctx)
	k = &link{
		endpoint: e,
		options:  &l.options,
		ctx:      ctx,
		cancel:   cancel,
		wake:     func() { l.options.Wake(e.Session) },
		answered: make(chan struct{}),
		poked:    make(chan struct{}, 1),
	}
	l.links[e.Session] = k
	return k
}
