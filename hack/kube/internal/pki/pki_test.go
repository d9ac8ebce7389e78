// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A leaf is good for its names and uses and for no others, by Go's own verifier.
func TestIssue(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca, err := OpenAuthority(dir, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenAuthority(dir, "other", now)
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{Name: "server", CommonName: "server", DNS: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Server: true}
	if err := ca.Issue(dir, leaf, now); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	verify := func(by *Authority, name string, use x509.ExtKeyUsage, at time.Time) bool {
		roots := x509.NewCertPool()
		roots.AddCert(by.cert)
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: at})
		return err == nil
	}
	for name, tc := range map[string]struct {
		want bool
		by   *Authority
		host string
		use  x509.ExtKeyUsage
		at   time.Time
	}{
		"its name":          {true, ca, "localhost", x509.ExtKeyUsageServerAuth, now},
		"its address":       {true, ca, "10.96.0.1", x509.ExtKeyUsageServerAuth, now},
		"another address":   {false, ca, "10.96.0.2", x509.ExtKeyUsageServerAuth, now},
		"as a client":       {false, ca, "localhost", x509.ExtKeyUsageClientAuth, now},
		"another authority": {false, other, "localhost", x509.ExtKeyUsageServerAuth, now},
		"after two years":   {false, ca, "localhost", x509.ExtKeyUsageServerAuth, now.AddDate(2, 0, 0)},
	} {
		if got := verify(tc.by, tc.host, tc.use, tc.at); got != tc.want {
			t.Errorf("%s: verified %t, want %t", name, got, tc.want)
		}
	}
}

// Authority and token key outlive a restart: pods hold what they signed.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	read := func() []byte {
		var all []byte
		for _, name := range []string{"ca.crt", "ca.key", "tokens.key", "tokens.pub"} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, content...)
		}
		return all
	}
	start := func() {
		if _, err := OpenAuthority(dir, "ca", time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := EnsureTokenKey(dir, "tokens"); err != nil {
			t.Fatal(err)
		}
	}
	start()
	before := read()
	start()
	if !bytes.Equal(before, read()) {
		t.Error("a second start changed the authority or the token key")
	}
}

// Keys are for root alone.
func TestKeyMode(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenAuthority(dir, "ca", time.Now()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key is %v", info.Mode())
	}
}
