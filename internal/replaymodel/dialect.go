// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
)

// dialect is what differs between the two wire formats. Rules, account and
// faults know none of it.
type dialect interface {
	name() string
	// admit says what is wrong with a request's headers.
	admit(http.Header) error
	// decode reads a body into the form that rules and account look at.
	decode(body []byte, snapshotTag string) (*request, error)
	// whole is the answer to a request that did not ask for a stream.
	whole(*answer) object
	// events is the answer as a stream.
	events(*answer) iter.Seq[event]
	// endless is what an answer that never ends goes on with.
	endless(a *answer, of string) iter.Seq[event]
	// tooLong says that a conversation exceeds the context window.
	tooLong(promptTokens, window int) refusal
	// failure is the body of an error answer, streamError the same within a stream.
	failure(refusal) object
	streamError(refusal) event
	// key is the API key that a request carries, empty when there is none;
	// carryKey puts another in its place, keyHint says how it is sent.
	key(http.Header) string
	carryKey(h http.Header, key string)
	keyHint() string
	// path is where the format is served below a base URL as its clients write it.
	path(baseURL string) string
	// endMark is the line that ends a stream.
	endMark() []byte
	// readWhole and readStream understand an answer of a real endpoint.
	readWhole(body []byte) (*heard, error)
	readStream(events [][]byte) (*heard, error)
}

// object is a JSON object that is sent.
type object = map[string]any

// event is one server-sent event.
type event struct {
	name     string
	data     object
	text     string // in place of data
	finishes bool   // carries the finish reason
}

func (e event) encode() ([]byte, error) {
	data := []byte(e.text)
	if e.data != nil {
		var err error
		if data, err = json.Marshal(e.data); err != nil {
			return nil, fmt.Errorf("encoding an event: %w", err)
		}
	}
	var out []byte
	if e.name != "" {
		out = fmt.Appendf(out, "event: %s\n", e.name)
	}
	return fmt.Appendf(out, "data: %s\n\n", data), nil
}

// refusal is why a request gets no reply.
type refusal struct {
	status     int
	code       string
	message    string
	retryAfter *int // seconds
	page       bool // HTML in place of the error
}
