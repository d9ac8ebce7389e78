// SPDX-License-Identifier: Apache-2.0

// Package authority is the operator's certificate authority: it decides who may
// pass for an agent and who for the operator. It keeps one Secret in the
// operator's namespace and knows nothing of sessions beyond their UIDs.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	caLifetime     = 10 * 365 * 24 * time.Hour
	clientLifetime = 30 * 24 * time.Hour
	clockSkew      = time.Hour // how far a node's clock may be behind the operator's
)

// Authority signs certificates for agents and for the operator itself.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time

	mu     sync.Mutex
	client *tls.Certificate // the operator's own; never leaves this process
}

// generate makes a new authority and the two PEM files that keep it.
func generate(now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating the key of the certificate authority: %w", err)
	}
	template, err := template("agentsession operator", now, now.Add(caLifetime))
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.MaxPathLenZero = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate authority: %w", err)
	}
	keyPEM, err = encodeKey(key)
	return encodeCert(der), keyPEM, err
}

// parse reads what generate wrote.
func parse(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	switch {
	case !ok:
		return nil, fmt.Errorf("the key is %T, not ECDSA", pair.PrivateKey)
	case !pair.Leaf.IsCA:
		return nil, fmt.Errorf("the certificate is not that of an authority")
	}
	return &Authority{cert: pair.Leaf, key: key, now: time.Now}, nil
}

// Hash is what a pod's spec says of this authority, see wire.CAHash.
func (a *Authority) Hash() string { return wire.CAHash(a.cert.Raw) }

// Pool holds this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Agent makes the files of a link Secret: a certificate that is good for serving
// as one incarnation of one session's agent and for nothing else. It lives as
// long as the authority, because a pod cannot take up a new one while it runs.
func (a *Authority) Agent(sessionUID, incarnation string) (map[string][]byte, error) {
	der, key, err := a.issue(wire.ServerName(sessionUID, incarnation), x509.ExtKeyUsageServerAuth, a.cert.NotAfter)
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
		wire.TLSCAFile:   encodeCert(a.cert.Raw),
	}, nil
}

// Client returns the operator's own certificate, made anew in the last third of its life.
func (a *Authority) Client() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.client != nil && now.Before(a.client.Leaf.NotAfter.Add(-clientLifetime/3)) {
		return a.client, nil
	}
	der, key, err := a.issue(wire.ClientName, x509.ExtKeyUsageClientAuth, now.Add(clientLifetime))
	if err != nil {
		return nil, fmt.Errorf("signing the operator's own certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's own certificate: %w", err)
	}
	a.client = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return a.client, nil
}

func (a *Authority) issue(name string, usage x509.ExtKeyUsage, until time.Time) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	// The name stands in the SAN alone: a subject holds 64 characters at most.
	template, err := template("", a.now(), until)
	if err != nil {
		return nil, nil, err
	}
	template.DNSNames = []string{name}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	return der, key, err
}

func template(commonName string, now, until time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     until,
	}, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
