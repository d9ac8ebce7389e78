// SPDX-License-Identifier: Apache-2.0

package linkserver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentsession-dev/operator/internal/wire"
)

// Identity is who this agent is, and how it knows the operator.
type Identity struct {
	SessionUID  string
	Incarnation string
	tls         *tls.Config
}

// LoadIdentity reads the mounted link Secret. The CA in it counts only if it is the one that
// the pod spec names: a Secret can be changed by whoever edits the namespace, the
// spec of a running pod cannot.
func LoadIdentity(dir, caHash, sessionUID, incarnation string) (*Identity, error) {
	raw, err := os.ReadFile(filepath.Join(dir, wire.TLSCAFile))
	if err != nil {
		return nil, fmt.Errorf("reading the operator's CA: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("reading the operator's CA: %s holds no PEM certificate", wire.TLSCAFile)
	}
	if hash := wire.CAHash(block.Bytes); hash != caHash {
		return nil, fmt.Errorf("the CA in the link Secret has the hash %s, not %s as the pod spec says: "+
			"somebody changed the Secret; delete the pod, the operator makes a new one", hash, caHash)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's CA: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, wire.TLSCertFile), filepath.Join(dir, wire.TLSKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &Identity{SessionUID: sessionUID, Incarnation: incarnation, tls: &tls.Config{
		// HTTP/2 lets a push overtake the poll that it interrupts: in HTTP/1.1 that costs the connection.
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, // checks the usage clientAuth too
		SessionTicketsDisabled: true,
		VerifyConnection:       verifyOperator,
	}}, nil
}

// verifyOperator takes orders from one name only: the CA signs the certificates of agents too.
func verifyOperator(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no client certificate")
	}
	return s.PeerCertificates[0].VerifyHostname(wire.ClientName)
}
