// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxBody is the largest request body that is read.
const MaxBody = 32 << 20

// Server answers from a script, or from a real endpoint that it records. It is
// an http.Handler.
type Server struct {
	script      *Script
	recorder    *Recorder // nil: plays the script
	attempts    attempts
	snapshotTag string
	apiKey      string
	log         *slog.Logger
	now         func() time.Time
	limits      Limits
	history     *history
	mux         *http.ServeMux
}

// Option changes one thing about a new Server.
type Option func(*Server)

// WithAPIKey makes the /v1 paths ask for this key, as the format sends it.
func WithAPIKey(key string) Option { return func(s *Server) { s.apiKey = key } }

// WithLogger sets where requests are logged; the default is nowhere.
func WithLogger(log *slog.Logger) Option { return func(s *Server) { s.log = log } }

// WithSnapshotTag sets what the content of a context snapshot begins with.
func WithSnapshotTag(tag string) Option { return func(s *Server) { s.snapshotTag = tag } }

// WithLimits sets how much is remembered.
func WithLimits(l Limits) Option { return func(s *Server) { s.limits = l } }

// WithClock sets the clock that records are stamped with.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithRecorder makes the server pass every request on and record what comes
// back; the script is not played and may be nil.
func WithRecorder(r *Recorder) Option { return func(s *Server) { s.recorder = r } }

// New returns a server that plays the script.
func New(script *Script, options ...Option) *Server {
	s := &Server{
		script: script, snapshotTag: DefaultSnapshotTag, log: slog.New(slog.DiscardHandler),
		now: time.Now, limits: DefaultLimits, mux: http.NewServeMux(),
	}
	for _, o := range options {
		o(s)
	}
	if s.script == nil {
		s.script = &Script{}
	}
	s.history = newHistory(s.limits)
	s.mux.HandleFunc("POST /v1/chat/completions", s.authorized(openAI{}, s.exchange))
	s.mux.HandleFunc("POST /v1/messages", s.authorized(anthropic{}, s.exchange))
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		s.authorized(dialectOf(r.Header), s.models)(w, r)
	})
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	s.mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Requests()) })
	s.mux.HandleFunc("GET /requests/{n}/body", s.requestBody)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "not_found", fmt.Sprintf(
			"%s %s is not served; the base URL of this server ends in /v1 (for clients of the messages format: before it), and it serves POST /v1/chat/completions, POST /v1/messages, GET /v1/models, GET /requests, GET /requests/N/body and GET /healthz",
			r.Method, cut(r.URL.Path)))
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns the account of the remembered requests, newest last.
func (s *Server) Requests() []Record { return s.history.records() }

// Body returns the received bytes of request n, false when they are not kept.
func (s *Server) Body(n int) ([]byte, bool) {
	body, kept, _ := s.history.body(n)
	return body, kept
}

// handler answers a request in a format.
type handler func(http.ResponseWriter, *http.Request, dialect)

// authorized compares digests, so that neither length nor content of the key leaks by time.
func (s *Server) authorized(d dialect, next handler) http.HandlerFunc {
	want := sha256.Sum256([]byte(s.apiKey))
	return func(w http.ResponseWriter, r *http.Request) {
		key := d.key(r.Header)
		have := sha256.Sum256([]byte(key))
		if s.apiKey == "" || subtle.ConstantTimeCompare(want[:], have[:]) == 1 {
			next(w, r, d)
			return
		}
		message := "the API key is wrong; send the key that this server was started with as: " + d.keyHint()
		if key == "" {
			message = "the API key is missing; send it as: " + d.keyHint()
		}
		s.log.Warn("Request refused", "status", http.StatusUnauthorized, "error", message, "path", r.URL.Path)
		writeRefusal(w, d, refusal{status: http.StatusUnauthorized, code: "invalid_api_key", message: message})
	}
}

// dialectOf tells the formats apart where they share a path.
func dialectOf(h http.Header) dialect {
	if h.Get("Anthropic-Version") != "" {
		return anthropic{}
	}
	return openAI{}
}

// models lists the names of the script with what either format's clients look for.
func (s *Server) models(w http.ResponseWriter, r *http.Request, _ dialect) {
	if s.recorder != nil {
		s.recorder.pass(w, r, s.recorder.baseURL+"/models")
		return
	}
	ids := s.script.models
	if len(ids) == 0 {
		ids = []string{"replay-model"}
	}
	data := []any{}
	for _, id := range ids {
		data = append(data, object{
			"id": id, "object": "model", "created": 0, "owned_by": "replay-model",
			"type": "model", "display_name": id, "created_at": "1970-01-01T00:00:00Z",
		})
	}
	writeJSON(w, http.StatusOK, object{
		"object": "list", "data": data, "has_more": false, "first_id": ids[0], "last_id": ids[len(ids)-1],
	})
}

func (s *Server) requestBody(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		writeError(w, http.StatusBadRequest, "bad_number", "the request number must be a whole number, as n in GET /requests")
		return
	}
	body, kept, forgotten := s.history.body(n)
	switch {
	case kept:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	case forgotten:
		writeError(w, http.StatusGone, "forgotten", fmt.Sprintf("request %d is no longer kept; GET /requests lists those that are", n))
	default:
		writeError(w, http.StatusNotFound, "not_found", fmt.Sprintf("there is no request %d; GET /requests lists those that are kept", n))
	}
}

// exchange reads, decides, accounts and only then speaks: what a client sees
// first is already in the account.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, d dialect) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		s.refuseUnread(w, d, err)
		return
	}
	rec := Record{Time: s.now().UTC(), Status: http.StatusOK, Format: d.name(), BodyBytes: len(body), BodyDigest: bodyDigest(body)}
	req, err := d.decode(body, s.snapshotTag)
	if s.recorder != nil {
		s.record(w, r, d, rec, body, req)
		return
	}
	if err == nil {
		err = d.admit(r.Header)
	}
	if err != nil {
		s.refuse(w, d, rec, body, nil, refusal{status: http.StatusBadRequest, code: "bad_request", message: err.Error()})
		return
	}
	v := viewOf(req, body)
	v.header = r.Header
	rec.describe(req, &v)
	if len(s.script.models) > 0 && !slices.Contains(s.script.models, req.model) {
		s.refuse(w, d, rec, body, req, refusal{status: http.StatusNotFound, code: "model_not_found", message: fmt.Sprintf(
			"there is no model %q; the script has %s", cut(req.model), strings.Join(s.script.models, ", "))})
		return
	}
	chosen, err := s.script.choose(&v)
	if chosen != nil {
		rec.Rule = chosen.label()
	}
	if err != nil {
		s.refuse(w, d, rec, body, req, refusalOf(chosen, err))
		return
	}
	s.answer(w, r, d, rec, body, req, chosen)
}

// answer lets this attempt's fault come first, if the rule has one for it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, d dialect, rec Record, body []byte, req *request, chosen *rule) {
	var f *fault
	if len(chosen.Faults) > 0 {
		f = chosen.faultAt(s.attempts.next(rec.BodyDigest))
	}
	if f != nil {
		rec.Fault = string(f.Kind)
	}
	p := promptOf(req, s.script.accounting)
	if f.refuses() {
		s.refuse(w, d, rec, body, req, f.refusal(d, tokens(len(p.stream))))
		return
	}
	rec = s.history.add(rec, body, &p, req.messages, true)
	s.play(r.Context(), w, d, rec, req, chosen, f)
}

// refusalOf tells a script without a rule from a rule whose requirement failed.
func refusalOf(chosen *rule, err error) refusal {
	if chosen == nil {
		return refusal{status: http.StatusBadRequest, code: "replay_no_rule", message: err.Error()}
	}
	return refusal{status: http.StatusBadRequest, code: "replay_requirement", message: chosen.label() + ": " + err.Error()}
}

func (r *Record) describe(req *request, v *view) {
	r.Stream = req.stream
	r.Conversation = conversationOf(req)
	r.HeaderDigest = headerDigest(req)
	r.ConversationDigest = v.digest
	r.Snapshots = len(v.snapshots)
	if r.Snapshots > 0 {
		r.LastSnapshot = v.snapshots[r.Snapshots-1]
	}
}

// refuse answers, records and logs a request that gets no reply.
func (s *Server) refuse(w http.ResponseWriter, d dialect, rec Record, body []byte, req *request, why refusal) {
	rec.Status, rec.Error = why.status, why.message
	if req == nil {
		rec = s.history.add(rec, body, nil, nil, false)
	} else {
		p := promptOf(req, s.script.accounting)
		rec = s.history.add(rec, body, &p, req.messages, false)
	}
	log := s.log.With("n", rec.N, "status", why.status, "code", why.code, "error", why.message)
	if rec.Fault != "" {
		log.Info("Fault played", "rule", rec.Rule, "fault", rec.Fault)
	} else {
		log.Error("Request refused")
	}
	writeRefusal(w, d, why)
}

// refuseUnread answers a body that did not come whole; there is nothing to account for.
func (s *Server) refuseUnread(w http.ResponseWriter, d dialect, err error) {
	why := refusal{status: http.StatusBadRequest, code: "bad_request", message: "the request body broke off: " + err.Error()}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		why = refusal{status: http.StatusRequestEntityTooLarge, code: "too_large", message: fmt.Sprintf(
			"the request body exceeds %d bytes; shorten the conversation", MaxBody)}
	}
	s.log.Error("Request refused", "status", why.status, "code", why.code, "error", why.message)
	writeRefusal(w, d, why)
}

// writeRefusal speaks as the provider of the format would.
func writeRefusal(w http.ResponseWriter, d dialect, why refusal) {
	if why.retryAfter != nil {
		w.Header().Set("Retry-After", strconv.Itoa(*why.retryAfter))
	}
	if why.page {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><body><h1>Sign in to continue</h1></body></html>\n")
		return
	}
	_ = writeJSON(w, why.status, d.failure(why))
}

// writeError is for the paths that belong to neither format.
func writeError(w http.ResponseWriter, status int, code, message string) {
	writeRefusal(w, openAI{}, refusal{status: status, code: code, message: message})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
