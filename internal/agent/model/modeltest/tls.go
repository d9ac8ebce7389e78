// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Root is a certificate authority of a test's own.
type Root struct {
	PEM  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewRoot makes an authority that nobody knows.
func NewRoot(t testing.TB, name string) *Root {
	t.Helper()
	r := &Root{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var raw []byte
	raw, r.key = signed(t, template, template, nil)
	var err error
	if r.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	r.PEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return r
}

// Serves is a certificate by which a server on 127.0.0.1 shows itself.
func (r *Root) Serves(t testing.TB) tls.Certificate {
	t.Helper()
	raw, key := signed(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "model"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, r.cert, r.key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// signed fills a template in and signs it; without a key, by its own.
func signed(t testing.TB, template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64)); err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return raw, key
}
