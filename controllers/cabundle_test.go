// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

func selfSigned(t *testing.T) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// What Go would leave out of a bundle without a word is named, and the class not accepted.
func TestABundleIsMadeOfCertificates(t *testing.T) {
	one := selfSigned(t)
	block := func(kind, content string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
	}
	for name, tc := range map[string]struct{ bundle, want string }{
		"none":                     {"", ""},
		"one":                      {one, ""},
		"two, with words between":  {"# old\n" + one + "\n# new\n" + one + "\n", ""},
		"words alone":              {"hello", "it holds no certificate"},
		"no certificate inside":    {one + block("CERTIFICATE", "hello"), "certificate 2 cannot be read (x509: malformed certificate)"},
		"a request":                {block("CERTIFICATE REQUEST", "x") + one, "block 1 is a CERTIFICATE REQUEST"},
		"one that is cut":          {one[:len(one)-40] + "\n", "1 of the 1 blocks that begin in it are damaged"},
		"one that is cut, and one": {one[:len(one)/2] + "\n" + one, "1 of the 2 blocks that begin in it are damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled()
			w.class.Spec.Model.CABundle = tc.bundle
			w.resolve()
			switch {
			case tc.want == "" && w.refused != nil:
				t.Errorf("refused: %+v", w.refused)
			case tc.want != "" && (w.refused == nil || w.refused.reason != v1alpha1.ReasonCABundleInvalid || !strings.Contains(w.refused.message, tc.want)):
				t.Errorf("refused %+v, want words %q", w.refused, tc.want)
			}
		})
	}
}
