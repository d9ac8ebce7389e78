// SPDX-License-Identifier: Apache-2.0

// Package authority is the operator's certificate authority: it decides who may
// pass for an agent and who for the operator, and when another key takes over. It
// keeps one Secret in the operator's namespace and knows nothing of sessions beyond
// their UIDs.
package authority

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	caLifetime     = 10 * 365 * 24 * time.Hour
	clientLifetime = 30 * 24 * time.Hour
	clockSkew      = time.Hour // how far a node's clock may be behind the operator's
)

// Options are for tests: the zero value is what an operator uses.
type Options struct {
	// Lifetime is how long an authority is good for, and with it the certificates of the
	// agents that it signed; Client how long the operator's own certificate is.
	Lifetime, Client time.Duration
	Now              func() time.Time
}

func (o Options) withDefaults() Options {
	o.Lifetime, o.Client = cmp.Or(o.Lifetime, caLifetime), cmp.Or(o.Client, clientLifetime)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Authority signs certificates for agents and for the operator itself. Beside the root that
// signs there may be the one before it, for the pods that were started with it.
type Authority struct {
	options Options

	mu    sync.Mutex
	roots []*root // the newest first
}

// set replaces what is known and reports whether another root signs now.
func (a *Authority) set(roots []*root) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range roots {
		if have := a.rootLocked(r.hash); have != nil {
			roots[i] = have // with its client certificate
		}
	}
	changed = len(a.roots) > 0 && a.roots[0].hash != roots[0].hash
	a.roots = roots
	return changed
}

func (a *Authority) rootLocked(hash string) *root {
	i := slices.IndexFunc(a.roots, func(r *root) bool { return r.hash == hash })
	if i < 0 {
		return nil
	}
	return a.roots[i]
}

func (a *Authority) root(hash string) (*root, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.rootLocked(hash); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("the operator has no certificate authority with the hash %.8s", hash)
}

// Hash is what the spec of a new pod says of this authority, see wire.CAHash.
func (a *Authority) Hash() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roots[0].hash
}

// Known reports whether a pod whose spec says hash can be spoken with.
func (a *Authority) Known(hash string) bool {
	r, err := a.root(hash)
	return err == nil && a.options.Now().Before(r.cert.NotAfter)
}

// Pool holds the root with a hash alone; nobody where there is none.
func (a *Authority) Pool(hash string) *x509.CertPool {
	pool := x509.NewCertPool()
	if r, err := a.root(hash); err == nil {
		pool.AddCert(r.cert)
	}
	return pool
}

// Agent makes the files of a link Secret, signed by the root with a hash: a certificate that
// is good for serving as one incarnation of one session's agent and for nothing else. It
// lives as long as the root, because a pod cannot take up a new one while it runs.
func (a *Authority) Agent(hash, sessionUID, incarnation string) (map[string][]byte, error) {
	r, err := a.root(hash)
	if err != nil {
		return nil, err
	}
	der, key, err := r.issue(wire.ServerName(sessionUID, incarnation), x509.ExtKeyUsageServerAuth, a.options.Now(), r.cert.NotAfter)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of an agent: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		wire.TLSCertFile: encodeCert(der),
		wire.TLSKeyFile:  keyPEM,
		wire.TLSCAFile:   encodeCert(r.cert.Raw),
	}, nil
}

// Client returns the operator's own certificate as the agents believe it that know the root
// with a hash. It is made anew in the last third of its life.
func (a *Authority) Client(hash string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.rootLocked(hash)
	if r == nil {
		return nil, fmt.Errorf("the operator has no certificate authority with the hash %.8s", hash)
	}
	now := a.options.Now()
	if r.client != nil && now.Before(r.client.Leaf.NotAfter.Add(-a.options.Client/3)) {
		return r.client, nil
	}
	until := now.Add(a.options.Client)
	if until.After(r.cert.NotAfter) {
		until = r.cert.NotAfter
	}
	der, key, err := r.issue(wire.ClientName, x509.ExtKeyUsageClientAuth, now, until)
	if err != nil {
		return nil, fmt.Errorf("signing the operator's own certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's own certificate: %w", err)
	}
	r.client = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return r.client, nil
}
