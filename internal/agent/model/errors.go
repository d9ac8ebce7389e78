// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// Kind is the sort of trouble that an endpoint is in.
type Kind string

// The kinds. Reason gives the word for a condition.
const (
	KeyMissing   Kind = "KeyMissing"   // the key file cannot be read or is empty; nothing was sent
	Refused      Kind = "Refused"      // nothing answers there: connection, name or TLS
	Auth         Kind = "Auth"         // 401, 403
	NotFound     Kind = "NotFound"     // 404, and redirects, which are not followed
	BadRequest   Kind = "BadRequest"   // any other 4xx
	RateLimited  Kind = "RateLimited"  // 429
	Server       Kind = "Server"       // 5xx, or an error inside the stream
	Timeout      Kind = "Timeout"      // no connection, no byte or no end in time
	BrokenStream Kind = "BrokenStream" // the stream ended before the answer did
	Nonsense     Kind = "Nonsense"     // it does not speak the protocol
	TooLarge     Kind = "TooLarge"     // the answer passed a bound
)

// Error is why a request got no answer. Its text says what to check and never
// holds the key.
type Error struct {
	Kind Kind
	// Status is the HTTP status, 0 when there was none.
	Status int
	// RetryAfter is what the endpoint asked for, 0 when it did not.
	RetryAfter time.Duration
	Message    string
}

func (e *Error) Error() string { return e.Message }

// Retryable is true where the same request may succeed later.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case Refused, RateLimited, Server, Timeout, BrokenStream:
		return true
	default:
		return false
	}
}

// Reason is a word for conditions and problems: ModelKeyMissing, ModelAuth, and so on.
func (e *Error) Reason() string { return "Model" + string(e.Kind) }

func errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
