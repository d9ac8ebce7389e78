// SPDX-License-Identifier: Apache-2.0

// Package pki issues the certificates and keys of the cluster and writes
// kubeconfigs. It knows who may be called what only through its caller.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	clockSkew     = time.Hour // between this machine and itself after a clock step
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf is a certificate to issue.
type Leaf struct {
	Name         string // of the files, without extension
	CommonName   string
	Organization string
	DNS          []string
	IPs          []netip.Addr
	Server       bool // serves TLS; it may be a client as well
	Client       bool
}

// OpenAuthority reads the authority in dir, or makes it when there is none. It
// outlives restarts of a cluster, since pods hold its certificate.
func OpenAuthority(dir, name string, now time.Time) (*Authority, error) {
	cert, key, err := readPair(dir, name)
	if err == nil {
		return &Authority{cert, key}, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the authority %s: %w", name, err)
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	cert, err = sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, key}, writePair(dir, name, cert, key)
}

// Issue writes NAME.crt and NAME.key to dir, over what was there: leaves are
// made anew at each start and so never expire under a cluster that is restarted.
func (a *Authority) Issue(dir string, l Leaf, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: l.CommonName},
		NotBefore: now.Add(-clockSkew),
		NotAfter:  now.Add(leafLife),
		DNSNames:  l.DNS,
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	if l.Organization != "" {
		template.Subject.Organization = []string{l.Organization}
	}
	for _, ip := range l.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	if l.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	cert, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("issuing the certificate %s: %w", l.Name, err)
	}
	return writePair(dir, l.Name, cert, key)
}

// EnsureTokenKey makes the pair that signs service account tokens, NAME.key and
// NAME.pub, unless it is there: tokens in running pods must stay good.
func EnsureTokenKey(dir, name string) error {
	if _, err := os.Stat(filepath.Join(dir, name+".pub")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeKey(dir, name, key); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".pub"), "PUBLIC KEY", public, 0o644)
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func readPair(dir, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certDER, err := readPEM(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := readPEM(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	return cert, key, err
}

func readPEM(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", path)
	}
	return block.Bytes, nil
}

// writePair writes the key first: a certificate on disk has its key.
func writePair(dir, name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	if err := writeKey(dir, name, key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", cert.Raw, 0o644)
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der, 0o600)
}

// writePEM replaces a file whole: a half-written key after a kill would stop
// every later start.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	aside := path + ".new"
	if err := os.WriteFile(aside, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return err
	}
	return os.Rename(aside, path)
}
