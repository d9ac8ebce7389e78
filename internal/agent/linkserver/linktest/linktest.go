// SPDX-License-Identifier: Apache-2.0

// Package linktest makes certificates for tests of the link: a CA, agents and operators, right
// and wrong ones.
package linktest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

// CA signs certificates.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{cert, key}
}

// Hash is what a pod spec says of the CA.
func (ca *CA) Hash() string { return wire.CAHash(ca.cert.Raw) }

// Sign makes a certificate for a name and a usage; it returns both as PEM.
func (ca *CA) Sign(t testing.TB, name string, usage x509.ExtKeyUsage) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, ca.cert, k.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// WriteSecret writes a link Secret as the kubelet mounts it.
func (ca *CA) WriteSecret(t testing.TB, dir, sessionUID, incarnation string) {
	t.Helper()
	cert, key := ca.Sign(t, wire.ServerName(sessionUID, incarnation), x509.ExtKeyUsageServerAuth)
	for name, b := range map[string][]byte{
		wire.TLSCertFile: cert, wire.TLSKeyFile: key,
		wire.TLSCAFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Client is an operator that speaks to one agent.
type Client struct {
	*http.Client
	base string
}

// Client makes a client with a certificate of that name and usage; both are
// wire.ClientName and clientAuth for the real operator.
func (ca *CA) Client(t testing.TB, addr, sessionUID, incarnation, name string, usage x509.ExtKeyUsage) *Client {
	t.Helper()
	cert, key := ca.Sign(t, name, usage)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: pool, ServerName: wire.ServerName(sessionUID, incarnation), Certificates: []tls.Certificate{pair},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{&http.Client{Transport: transport}, "https://" + addr}
}

// Do sends a request and returns the status and the body.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := c.Client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, wire.MaxObserved+1))
	return response.StatusCode, b, err
}

// Put pushes a desired state.
func (c *Client) Put(ctx context.Context, d wire.Desired) (int, []byte, error) {
	body, err := json.Marshal(d)
	if err != nil {
		return 0, nil, err
	}
	return c.Do(ctx, http.MethodPut, wire.DesiredPath, body)
}
