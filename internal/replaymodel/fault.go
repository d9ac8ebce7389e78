// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// faultKind is one way in which providers fail.
type faultKind string

// The first three come in place of a reply, the others befall one.
const (
	faultStatus        faultKind = "status"        // an error status, with Retry-After if wanted
	faultContextLength faultKind = "contextLength" // the conversation is too long, as the provider words it
	faultHTML          faultKind = "html"          // 200 with a page, as captive proxies send it

	faultStall         faultKind = "stall"         // the connection stays open and silent
	faultCut           faultKind = "cut"           // the connection breaks
	faultNoFinish      faultKind = "noFinish"      // the reply ends without saying why
	faultStreamError   faultKind = "streamError"   // an error event within the stream
	faultEndless       faultKind = "endless"       // the reply does not end before the client leaves
	faultInvalidUTF8   faultKind = "invalidUTF8"   // the text holds bytes that are none
	faultUnknownFinish faultKind = "unknownFinish" // a finish reason that no document names
)

// What an endless reply consists of.
const (
	endlessText      = "text"
	endlessReasoning = "reasoning"
	endlessArguments = "arguments"
	endlessLine      = "line" // a line that never ends: no event is ever complete
)

// contextWindow is the limit that contextLength speaks of.
const contextWindow = 131072

// fault is one entry of a rule's faults: it befalls the next Times attempts.
type fault struct {
	Kind       faultKind `json:"kind"`
	Times      int       `json:"times,omitempty"`
	Status     int       `json:"status,omitempty"`
	Code       string    `json:"code,omitempty"`
	Message    string    `json:"message,omitempty"`
	RetryAfter *int      `json:"retryAfter,omitempty"`
	After      *int      `json:"after,omitempty"`
	Of         string    `json:"of,omitempty"`
}

// faultFields names, for each kind, the fields that mean something with it.
var faultFields = map[faultKind][]string{
	faultStatus:        {"status", "code", "message", "retryAfter"},
	faultContextLength: {},
	faultHTML:          {},
	faultStall:         {"after"},
	faultCut:           {"after"},
	faultNoFinish:      {"after"},
	faultStreamError:   {"after", "message"},
	faultEndless:       {"of"},
	faultInvalidUTF8:   {},
	faultUnknownFinish: {},
}

func checkFaults(faults []fault) error {
	for i := range faults {
		if err := faults[i].check(); err != nil {
			return fmt.Errorf("faults[%d]: %w", i, err)
		}
	}
	return nil
}

func (f *fault) check() error {
	fields, known := faultFields[f.Kind]
	if !known {
		return fmt.Errorf("kind is %q; use status, contextLength, html, stall, cut, noFinish, streamError, endless, invalidUTF8 or unknownFinish", f.Kind)
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"status", f.Status != 0}, {"code", f.Code != ""}, {"message", f.Message != ""},
		{"retryAfter", f.RetryAfter != nil}, {"after", f.After != nil}, {"of", f.Of != ""},
	} {
		if field.set && !slices.Contains(fields, field.name) {
			return fmt.Errorf("%s means nothing with kind: %s; remove it", field.name, f.Kind)
		}
	}
	switch {
	case f.Times < 0:
		return fmt.Errorf("times is %d; use 1 or more", f.Times)
	case f.Kind == faultStatus && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("status is %d; use one from 400 to 599", f.Status)
	case f.RetryAfter != nil && *f.RetryAfter < 0:
		return fmt.Errorf("retryAfter is %d; use whole seconds, 0 or more", *f.RetryAfter)
	case f.After != nil && *f.After < 0:
		return fmt.Errorf("after is %d; use the number of stream events to send before", *f.After)
	case f.Of != "" && !slices.Contains([]string{endlessText, endlessReasoning, endlessArguments, endlessLine}, f.Of):
		return fmt.Errorf("of is %q; use text, reasoning, arguments or line", f.Of)
	}
	return nil
}

// refuses tells the faults that come in place of a reply: the model never saw
// the prompt, so it warms no cache.
func (f *fault) refuses() bool {
	return f != nil && slices.Contains([]faultKind{faultStatus, faultContextLength, faultHTML}, f.Kind)
}

// strikes says whether the fault breaks the stream before this event, the n-th
// from 0: at the latest before the one that carries the finish reason.
func (f *fault) strikes(n int, e event) bool {
	if f == nil {
		return false
	}
	switch f.Kind {
	case faultStall, faultCut, faultNoFinish, faultStreamError, faultEndless:
		return e.finishes || (f.After != nil && n >= *f.After)
	}
	return false
}

// refusal is the answer of a fault that comes in place of a reply.
func (f *fault) refusal(d dialect, promptTokens int) refusal {
	switch f.Kind {
	case faultContextLength:
		return d.tooLong(promptTokens, contextWindow)
	case faultHTML:
		return refusal{status: http.StatusOK, message: "the script's fault html: a page in place of a reply", page: true}
	}
	why := refusal{status: f.Status, code: f.Code, message: f.Message, retryAfter: f.RetryAfter}
	if why.message == "" {
		why.message = fmt.Sprintf("a fault of the script: %s", strings.ToLower(http.StatusText(f.Status)))
	}
	if why.code == "" && f.Status == http.StatusTooManyRequests {
		why.code = "rate_limit_exceeded"
	}
	return why
}

// faultAt returns what befalls the n-th attempt, counted from 1. A rule without
// a reply stays with its last fault.
func (r *rule) faultAt(n int) *fault {
	for i := range r.Faults {
		if n -= max(1, r.Faults[i].Times); n <= 0 {
			return &r.Faults[i]
		}
	}
	if r.Reply == nil {
		return &r.Faults[len(r.Faults)-1]
	}
	return nil
}

// errBroken ends a reply that a fault broke off on purpose.
var errBroken = errors.New("broken off by a fault of the script")

// maxAttempted bounds the bodies whose attempts are counted; the oldest is forgotten first.
const maxAttempted = 4096

// attempts counts how often a body came. It is the one thing about the choice of
// an answer that a server remembers: without it no fault could ever end.
type attempts struct {
	mu    sync.Mutex
	count map[string]int
	order []string
}

func (a *attempts) next(digest string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		a.count = map[string]int{}
	}
	if a.count[digest] == 0 {
		a.order = append(a.order, digest)
	}
	if len(a.order) > maxAttempted {
		delete(a.count, a.order[0])
		a.order = a.order[1:]
	}
	a.count[digest]++
	return a.count[digest]
}
