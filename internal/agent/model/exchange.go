// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The bounds of an answer. They are far above what a model says in one step, and
// below what would hurt the agent.
const (
	maxAnswer    = 8 << 20   // bytes of content and reasoning
	maxCalls     = 128       // tool calls
	maxArguments = 1 << 20   // bytes of one call's arguments
	maxName      = 256       // bytes of a call's name or ID
	maxStream    = 128 << 20 // bytes on the wire, whatever they say
	maxEvent     = 4 << 20   // bytes between two empty lines of the stream
	maxErrorBody = 64 << 10
)

// exchange is the transport of one Send. It is the last thing of ours that a
// request passes: what leaves is exactly what was prepared, once, or nothing.
type exchange struct {
	at       endpoint
	next     http.RoundTripper
	prepared Prepared
	idle     *watchdog
	used     bool
}

func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := x.check(req); err != nil {
		return nil, err
	}
	resp, err := x.next.RoundTrip(x.outgoing(req))
	if err != nil {
		return nil, err
	}
	x.idle.pet()
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, x.at.status(resp.StatusCode, resp.Header, body, x.prepared.model)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "" && kind != "text/event-stream" {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		e := errorf(Nonsense, "the model endpoint %s answered with %s where a stream was expected: check that the base URL is %s with streaming", x.at, clean(kind), x.at.api)
		e.Status = resp.StatusCode
		return nil, e.detailed(errorText(resp.Header, body))
	}
	resp.Body = &boundedBody{body: resp.Body, idle: x.idle, at: x.at}
	return resp, nil
}

// check lets a request pass once, and only with the prepared bytes.
func (x *exchange) check(req *http.Request) error {
	if x.used {
		return errorf(BadRequest, "the model request was about to be sent a second time: it was held back")
	}
	x.used = true
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(io.LimitReader(req.Body, int64(len(x.prepared.body))+1)); err != nil {
			return fmt.Errorf("reading the request's body: %w", err)
		}
	}
	if !bytes.Equal(body, x.prepared.body) {
		return errorf(BadRequest, "the bytes of the model request are not the prepared ones: nothing was sent")
	}
	return nil
}

// sentHeaders is all that an SDK may say beside the body.
var sentHeaders = []string{"Content-Type", "Authorization", "X-Api-Key", "Anthropic-Version"}

// outgoing is the request as it leaves. What the SDK tells about this machine
// stays here.
func (x *exchange) outgoing(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	for name := range out.Header {
		if !slices.Contains(sentHeaders, name) {
			out.Header.Del(name)
		}
	}
	out.Header.Set("User-Agent", "agentsession")
	out.Header.Set("Accept", "text/event-stream")
	out.ContentLength = int64(len(x.prepared.body))
	out.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(x.prepared.body)), nil
	}
	out.Body, _ = out.GetBody()
	return out
}

// boundedBody ends a stream that is too long, and tells the watchdog of each read.
type boundedBody struct {
	body  io.ReadCloser
	idle  *watchdog
	at    endpoint
	total int64
	event int // bytes since the last empty line
	line  int // bytes since the last newline
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.idle.pet()
	}
	b.total += int64(n)
	if b.total > maxStream {
		return 0, errorf(TooLarge, "the model endpoint %s streams without an end: the answer was given up after %d MiB", b.at, maxStream>>20)
	}
	for _, c := range p[:n] {
		b.event++
		switch {
		case c == '\r':
		case c != '\n':
			b.line++
		default:
			if b.line == 0 {
				b.event = 0
			}
			b.line = 0
		}
		if b.event > maxEvent {
			return 0, errorf(TooLarge, "the model endpoint %s sent a chunk of more than %d MiB: check that it streams", b.at, maxEvent>>20)
		}
	}
	return n, err
}

func (b *boundedBody) Close() error { return b.body.Close() }

// watchdog calls bark when it was not petted for a while.
type watchdog struct {
	after time.Duration
	timer *time.Timer
	mu    sync.Mutex
	ended bool
}

func newWatchdog(after time.Duration, bark func()) *watchdog {
	return &watchdog{after: after, timer: time.AfterFunc(after, bark)}
}

func (w *watchdog) pet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.after)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}
