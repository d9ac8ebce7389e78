// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	sessionUID  = "0b9f6f0e-7d0a-4ae6-8a2f-6f6f1d1d0c11"
	incarnation = "k2p7x9qd"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	a, err := Ensure(t.Context(), c, c, "operator", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve accepts one mTLS connection as the agent would and returns its address and the handshake's error.
func serve(t *testing.T, _ *Authority, files map[string][]byte) (string, <-chan error) {
	t.Helper()
	return serveAt(t, files, time.Now)
}

func serveAt(t *testing.T, files map[string][]byte, now func() time.Time) (string, <-chan error) {
	t.Helper()
	pair, err := tls.X509KeyPair(files[wire.TLSCertFile], files[wire.TLSKeyFile])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(files[wire.TLSCAFile])
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, Time: now,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	result := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).HandshakeContext(context.WithoutCancel(t.Context()))
			if err == nil {
				err = c.(*tls.Conn).ConnectionState().PeerCertificates[0].VerifyHostname(wire.ClientName)
			}
			c.Close()
		}
		result <- err
	}()
	return l.Addr().String(), result
}

func dial(t *testing.T, a *Authority, addr, name string, cert *tls.Certificate) error {
	t.Helper()
	return dialFor(t, a.Pool(a.Hash()), addr, name, cert, time.Now)
}

func dialFor(t *testing.T, pool *x509.CertPool, addr, name string, cert *tls.Certificate, now func() time.Time) error {
	t.Helper()
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: name, Certificates: []tls.Certificate{*cert}, Time: now})
	defer c.Close()
	return c.HandshakeContext(t.Context())
}

func TestBothSidesAcceptEachOther(t *testing.T) {
	a := newAuthority(t)
	files, err := a.Agent(a.Hash(), sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	own, err := a.Client(a.Hash())
	if err != nil {
		t.Fatal(err)
	}
	addr, served := serve(t, a, files)
	if err := dial(t, a, addr, wire.ServerName(sessionUID, incarnation), own); err != nil {
		t.Fatalf("the operator refuses the agent: %v", err)
	}
	if err := <-served; err != nil {
		t.Fatalf("the agent refuses the operator: %v", err)
	}
}

func TestTheAgentOfAnotherSessionIsRefused(t *testing.T) {
	a := newAuthority(t)
	files, err := a.Agent(a.Hash(), "1c9f6f0e-7d0a-4ae6-8a2f-6f6f1d1d0c11", incarnation)
	if err != nil {
		t.Fatal(err)
	}
	own, _ := a.Client(a.Hash())
	addr, _ := serve(t, a, files)
	err = dial(t, a, addr, wire.ServerName(sessionUID, incarnation), own)
	if err == nil || !strings.Contains(err.Error(), "not "+wire.ServerName(sessionUID, incarnation)) {
		t.Fatalf("dialling the agent of another session: %v, want a refusal of its name", err)
	}
}

func TestAnAgentCannotPassForTheOperator(t *testing.T) {
	a := newAuthority(t)
	files, err := a.Agent(a.Hash(), sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := tls.X509KeyPair(files[wire.TLSCertFile], files[wire.TLSKeyFile])
	if err != nil {
		t.Fatal(err)
	}
	addr, served := serve(t, a, files)
	_ = dial(t, a, addr, wire.ServerName(sessionUID, incarnation), &stolen)
	if err := <-served; err == nil {
		t.Fatal("the agent took another agent's certificate for the operator's")
	}
}

func TestTheHashInThePodSpecIsThatOfTheMountedFile(t *testing.T) {
	a := newAuthority(t)
	files, err := a.Agent(a.Hash(), sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files[wire.TLSCAFile]) || !pool.Equal(a.Pool(a.Hash())) {
		t.Fatalf("%s does not hold the authority", wire.TLSCAFile)
	}
	if got := wire.CAHash(a.roots[0].cert.Raw); got != a.Hash() || len(got) != 64 {
		t.Fatalf("Hash() = %q, want %q", a.Hash(), got)
	}
}

func TestTheClientCertificateIsRenewedBeforeItEnds(t *testing.T) {
	a := newAuthority(t)
	first, err := a.Client(a.Hash())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := a.Client(a.Hash()); again != first {
		t.Error("a fresh certificate was made anew")
	}
	a.options.Now = func() time.Time { return first.Leaf.NotAfter.Add(-time.Hour) }
	second, err := a.Client(a.Hash())
	if err != nil {
		t.Fatal(err)
	}
	if second == first || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Error("the certificate was not made anew in the last hour of its life")
	}
}

func TestReplicasThatStartTogetherShareOneAuthority(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	hashes := make([]string, 8)
	var wg sync.WaitGroup
	for i := range hashes {
		wg.Go(func() {
			a, err := Ensure(t.Context(), c, c, "operator", Options{})
			if err != nil {
				t.Error(err)
				return
			}
			hashes[i] = a.Hash()
		})
	}
	wg.Wait()
	for _, h := range hashes {
		if h != hashes[0] || h == "" {
			t.Fatalf("replicas have different authorities: %q", hashes)
		}
	}
}

func TestABrokenSecretSaysWhatToDo(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: SecretName}}).Build()
	_, err := Ensure(t.Context(), c, c, "operator", Options{})
	if err == nil || !strings.Contains(err.Error(), "delete it and restart") {
		t.Fatalf("Ensure() = %v, want what to do", err)
	}
}
