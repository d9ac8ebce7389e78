// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Kind is the sort of trouble that an endpoint is in.
type Kind string

// The kinds. Reason gives the word for a condition.
const (
	KeyMissing Kind = "KeyMissing" // the key file cannot be used; nothing was sent
	Refused    Kind = "Refused"    // nothing answers there: connection, name or TLS
	Auth       Kind = "Auth"       // 401, 403
	NotFound   Kind = "NotFound"   // 404, and redirects, which are not followed
	BadRequest Kind = "BadRequest" // any other 4xx, or a request that cannot be rendered
	// ContextOverflow is a refusal because the prompt does not fit the model's window.
	ContextOverflow Kind = "ContextOverflow"
	RateLimited     Kind = "RateLimited"  // 429
	Server          Kind = "Server"       // 5xx, or an error inside the stream
	Timeout         Kind = "Timeout"      // no connection, no byte or no end in time
	BrokenStream    Kind = "BrokenStream" // the stream ended before the answer did
	Nonsense        Kind = "Nonsense"     // it does not speak the protocol
	TooLarge        Kind = "TooLarge"     // the answer passed a bound
)

// Error is why a request got no answer. Neither of its texts holds the key.
type Error struct {
	Kind Kind
	// Status is the HTTP status, 0 when there was none.
	Status int
	// RetryAfter is what the endpoint asked for, 0 when it did not.
	RetryAfter time.Duration
	// Message says what is wrong and what to check. It is the same each time the
	// same thing is wrong, so it may stand in a status.
	Message string
	// Detail is what the endpoint or the system said about it: not ours, and not
	// stable. It is short and without control characters.
	Detail string
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Message
	}
	return e.Message + " (" + e.Detail + ")"
}

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

func (e *Error) detailed(detail string) *Error {
	e.Detail = clean(detail)
	return e
}

const maxDetail = 300

// clean makes foreign text fit for a log line.
func clean(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))), " ")
	if runes := []rune(s); len(runes) > maxDetail {
		return string(runes[:maxDetail]) + "…"
	}
	return s
}

// endpoint words errors about one base URL.
type endpoint struct {
	url  string
	api  string // what should be there
	path string // what the API adds to the base URL
}

func (at endpoint) String() string { return at.url }

// status classifies an answer that is not a stream.
func (at endpoint) status(code int, header http.Header, body []byte, model string) *Error {
	e := at.byStatus(code, model)
	e.Status, e.RetryAfter = code, retryAfter(header, time.Now())
	return at.overflow(e.detailed(errorText(header, body)), body)
}

// inStream classifies an error that came inside a stream, by the status that it
// would have had.
func (at endpoint) inStream(code int, body []byte, model string) *Error {
	return at.overflow(at.byStatus(code, model).detailed(errorText(http.Header{}, body)), body)
}

// nonsense is for a stream that is not what the API streams.
func (at endpoint) nonsense(detail string) *Error {
	return errorf(Nonsense, "the model endpoint %s streams something else than %s does: check the base URL", at, at.api).detailed(detail)
}

// overflowWords is how endpoints say that a prompt does not fit the model's
// window: they share no code for it.
var overflowWords = []string{
	"context_length_exceeded", "context length", "context window", "context limit", "prompt is too long",
	"prompt too long", "input is too long", "too many tokens", "range of input length", "request_too_large",
}

// overflow singles out the one bad request that another, shorter one may mend.
func (at endpoint) overflow(e *Error, body []byte) *Error {
	if e.Kind != BadRequest {
		return e
	}
	said := strings.ToLower(string(body[:min(len(body), maxErrorBody)]))
	for _, word := range overflowWords {
		if strings.Contains(said, word) {
			e.Kind = ContextOverflow
			e.Message = fmt.Sprintf("the request does not fit the context window of the model at %s: the conversation must be shortened", at)
			return e
		}
	}
	return e
}

func (at endpoint) byStatus(code int, model string) *Error {
	switch {
	case code >= 300 && code < 400:
		return errorf(NotFound, "the model endpoint %s redirects elsewhere, and redirects are not followed: check the base URL", at)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return errorf(Auth, "the model endpoint %s answered %d: check the API key, and that it may use the model %q", at, code, model)
	case code == http.StatusNotFound:
		return errorf(NotFound, "the model endpoint %s answered 404: check the base URL (it ends before %s) and the model name %q", at, at.path, model)
	case code == http.StatusTooManyRequests:
		return errorf(RateLimited, "the model endpoint %s is limiting requests (429): wait, or check the account's quota", at)
	case code == http.StatusRequestTimeout:
		return errorf(Timeout, "the model endpoint %s gave up waiting for the request (408): check the network or proxy in between", at)
	case code >= 400 && code < 500:
		return errorf(BadRequest, "the model endpoint %s refused the request (%d): check the model name %q and its parameters", at, code, model)
	case code >= 500:
		return errorf(Server, "the model endpoint %s is in trouble (%d): try again later, or check its logs", at, code)
	default:
		return errorf(Nonsense, "the model endpoint %s answered %d where a stream was expected: check that the base URL is %s", at, code, at.api)
	}
}

// errorText finds the sentence in an error body; a page of HTML has none.
func errorText(header http.Header, body []byte) string {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &shape) != nil {
		if strings.Contains(header.Get("Content-Type"), "html") {
			return "it sent a web page"
		}
		return string(body[:min(len(body), 4*maxDetail)])
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(shape.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(shape.Error, &text) == nil && text != "":
		return text
	case shape.Message != "":
		return shape.Message
	default:
		return string(shape.Detail)
	}
}

const maxRetryAfter = time.Hour

func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	d := time.Duration(0)
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		d = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// network classifies what went wrong below HTTP. streaming says that the answer
// had begun.
func (at endpoint) network(err error, streaming bool) *Error {
	detail := err.Error()
	var (
		dns      *net.DNSError
		record   tls.RecordHeaderError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		timeout  net.Error
	)
	switch {
	case errors.As(err, &dns):
		return errorf(Refused, "the host of the model endpoint %s cannot be found: check the base URL and the cluster's DNS", at).detailed(detail)
	case errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalid):
		return errorf(Refused, "the certificate of the model endpoint %s is not trusted: check the base URL, or put its authority into the CA bundle (the class's model.caBundle)", at).detailed(detail)
	case errors.As(err, &record), strings.Contains(detail, "HTTP response to HTTPS client"):
		return errorf(Refused, "the model endpoint %s does not speak TLS: check whether the base URL should begin with http://", at).detailed(detail)
	case errors.As(err, &timeout) && timeout.Timeout():
		return errorf(Timeout, "the model endpoint %s cannot be reached in time: check the base URL, proxy and network policy", at).detailed(detail)
	case streaming, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errorf(BrokenStream, "the model endpoint %s closed the connection before the answer was complete: try again, or check proxies in between", at).detailed(detail)
	default:
		return errorf(Refused, "the model endpoint %s cannot be reached: check the base URL and that the server runs", at).detailed(detail)
	}
}

// explain turns whatever ended a request into an *Error, or into the context's
// error if the caller ended it.
func (at endpoint) explain(caller, ctx context.Context, err error, streaming bool) error {
	if caller.Err() != nil {
		return fmt.Errorf("the model request was ended: %w", caller.Err())
	}
	if e, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return e
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return at.network(err, streaming)
}
