// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

// root is one key that signs, and its certificate.
type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	hash string

	client *tls.Certificate // the operator's own by this root; never leaves this process
}

// begun is when the root was made.
func (r *root) begun() time.Time { return r.cert.NotBefore.Add(clockSkew) }

// old reports whether the root is in the last third of its life.
func (r *root) old(now time.Time) bool {
	return now.After(r.cert.NotAfter.Add(-r.cert.NotAfter.Sub(r.begun()) / 3))
}

// generate makes a new root and the two PEM files that keep it.
func generate(now time.Time, lifetime time.Duration) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating the key of the certificate authority: %w", err)
	}
	template, err := template("agentsession operator", now, now.Add(lifetime))
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
func parse(certPEM, keyPEM []byte) (*root, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	switch {
	case !ok:
		return nil, fmt.Errorf("the key is %T, not ECDSA", pair.PrivateKey)
	case !pair.Leaf.IsCA:
		return nil, errors.New("the certificate is not that of an authority")
	}
	return &root{cert: pair.Leaf, key: key, hash: wire.CAHash(pair.Leaf.Raw)}, nil
}

func (r *root) issue(name string, usage x509.ExtKeyUsage, now, until time.Time) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	// The name stands in the SAN alone: a subject holds 64 characters at most.
	template, err := template("", now, until)
	if err != nil {
		return nil, nil, err
	}
	template.DNSNames = []string{name}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	der, err := x509.CreateCertificate(rand.Reader, template, r.cert, key.Public(), r.key)
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
