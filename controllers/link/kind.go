// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
)

// The ways in which an exchange fails: few, so that they can be counted apart.
const (
	kindConflict    = "conflict"    // the agent holds a policy made from newer objects
	kindMisdirected = "misdirected" // another session's agent answered
	kindRefused     = "refused"     // the agent refused the desired state
	kindInvalid     = "invalid"     // the answer cannot be used
	kindIdentity    = "identity"    // one side does not believe the other's certificate
	kindTimeout     = "timeout"
	kindDial        = "dial"
	kindClosed      = "closed" // the connection ended
	kindOther       = "other"
)

// Kinds are all the ways in which an exchange fails.
func Kinds() []string {
	return []string{kindConflict, kindMisdirected, kindRefused, kindInvalid, kindIdentity, kindTimeout, kindDial, kindClosed, kindOther}
}

func kindOf(err error) string {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.kind
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return kindIdentity
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return kindIdentity
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch {
		case op.Op == "remote error": // an alert of the other side's TLS
			return kindIdentity
		case op.Timeout():
			return kindTimeout
		case op.Op == "dial":
			return kindDial
		}
		return kindClosed
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return kindTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return kindClosed
	}
	return kindOther
}
