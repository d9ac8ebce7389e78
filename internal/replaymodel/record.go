// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// Recorder passes requests on to a real endpoint and writes what it answers
// as scripts. It is used by a Server with WithRecorder.
type Recorder struct {
	baseURL   string
	key       func() (string, error)
	log       *slog.Logger
	transport http.RoundTripper

	mu      sync.Mutex
	secrets []string // never written
	files   map[string]*recording
	to      string
	toDir   bool
}

// NewRecorder records from a base URL, as clients write it, into a file that
// does not exist yet, or into one file for each conversation if to is a
// directory or ends in a slash. The key is asked for at each request; without
// it, clients' own keys are passed on.
func NewRecorder(baseURL, to string, key func() (string, error), log *slog.Logger) (*Recorder, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, errors.New("the URL to record from cannot be read; write it like https://api.example.com/v1")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("the URL to record from is %q; write it like https://api.example.com/v1", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL to record from must have neither user, query nor fragment: %s; keys belong into headers", u.Host)
	}
	// An answer that the transport itself would unpack could not be passed on unchanged.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	r := &Recorder{
		baseURL: strings.TrimSuffix(baseURL, "/"), key: key, log: log, transport: transport,
		files: map[string]*recording{}, to: to,
	}
	if r.toDir, err = prepareTarget(to); err != nil {
		return nil, err
	}
	return r, nil
}

// record passes a request on and keeps what came back, whether or not the client
// stayed for it. A body that is not understood is passed on, too: it is the
// endpoint's to refuse.
func (s *Server) record(w http.ResponseWriter, r *http.Request, d dialect, rec Record, body []byte, req *request) {
	var p *prompt
	var messages []message
	if req != nil {
		v := viewOf(req, body)
		rec.describe(req, &v)
		whole := promptOf(req, s.script.accounting)
		p, messages = &whole, req.messages
	}
	rec = s.history.add(rec, body, p, messages, true)
	log := s.log.With("n", rec.N, "conversation", rec.Conversation)
	h := &hearing{endMark: d.endMark()}
	h.done = sync.OnceFunc(func() {
		s.history.finish(rec.N, h.status, h.trouble())
		if req == nil {
			log.Warn("Request not recorded: its body is not understood", "status", h.status)
			return
		}
		if err := s.recorder.note(d, rec, req.stream, h); err != nil {
			log.Error("Answer not recorded", "status", h.status, "error", err)
			return
		}
		log.Info("Answer recorded", "status", h.status, "trouble", h.trouble())
	})
	defer h.done() // a broken answer leaves forward as a panic, which net/http wants to see
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	s.recorder.forward(w, r, d, d.path(s.recorder.baseURL), h)
}

// pass forwards a request that is not recorded.
func (r *Recorder) pass(w http.ResponseWriter, req *http.Request, target string) {
	r.forward(w, req, dialectOf(req.Header), target, &hearing{done: func() {}})
}

func (r *Recorder) forward(w http.ResponseWriter, req *http.Request, d dialect, target string, h *hearing) {
	to, err := url.Parse(target)
	if err == nil {
		err = r.authorize(req.Header, d)
	}
	if err != nil {
		h.fail(w, d, err)
		return
	}
	to.RawQuery = req.URL.RawQuery
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, to.Host
			p.Out.Header.Del("Accept-Encoding")
		},
		Transport:     r.transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
		ModifyResponse: func(resp *http.Response) error {
			h.status, h.header = resp.StatusCode, resp.Header
			resp.Body = &tap{ReadCloser: resp.Body, h: h}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { h.fail(w, d, err) },
	}
	proxy.ServeHTTP(w, req)
}

// authorize puts the endpoint's key in place of the client's, if there is one,
// and remembers all keys as what must never be written.
func (r *Recorder) authorize(h http.Header, d dialect) error {
	r.keepSecret(d.key(h))
	if r.key == nil {
		return nil
	}
	key, err := r.key()
	if err != nil {
		return err
	}
	r.keepSecret(key)
	d.carryKey(h, key)
	return nil
}

// hearing is an answer as it passes by.
type hearing struct {
	status  int
	header  http.Header
	body    []byte
	endMark []byte // of a stream: clients leave there and do not wait for the end
	ended   bool   // came to its end, or the end mark
	err     error  // did not, because
	done    func() // before the client can see the end: who has the answer finds it recorded
}

func (h *hearing) trouble() string {
	switch {
	case h.err != nil:
		return h.err.Error()
	case !h.ended:
		return "the client left before the end of the answer"
	case h.status != http.StatusOK:
		return "the endpoint refused the request"
	}
	return ""
}

// fail answers where the endpoint gave no answer.
func (h *hearing) fail(w http.ResponseWriter, d dialect, err error) {
	h.status, h.err = http.StatusBadGateway, fmt.Errorf("asking the endpoint: %w", err)
	writeRefusal(w, d, refusal{status: h.status, code: "upstream", message: h.err.Error()})
}

// hear keeps what came, and knows the end mark: a line of its own, which the
// data of an event cannot hold.
func (h *hearing) hear(piece []byte) {
	if len(h.body)+len(piece) > MaxBody {
		h.err = errTooLong
		return
	}
	before := max(0, len(h.body)-len(h.endMark))
	h.body = append(h.body, piece...)
	if h.endMark != nil && bytes.Contains(h.body[before:], h.endMark) {
		h.ended = true
	}
}

var errTooLong = fmt.Errorf("the answer exceeds %d bytes", MaxBody)

// tap copies what is read through it.
type tap struct {
	io.ReadCloser
	h *hearing
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.h.hear(p[:n])
	switch {
	case t.h.ended: // what comes behind the end mark, and how, is of no matter
	case errors.Is(err, io.EOF):
		t.h.ended = true
	case err != nil:
		t.h.err = err
	}
	if t.h.ended {
		t.h.done()
	}
	return n, err
}
