// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"context"
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

// Server answers from a script. It is an http.Handler.
type Server struct {
	script      *Script
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

// WithAPIKey makes the /v1 paths ask for this bearer token.
func WithAPIKey(key string) Option { return func(s *Server) { s.apiKey = key } }

// WithLogger sets where requests are logged; the default is nowhere.
func WithLogger(log *slog.Logger) Option { return func(s *Server) { s.log = log } }

// WithSnapshotTag sets what the content of a context snapshot begins with.
func WithSnapshotTag(tag string) Option { return func(s *Server) { s.snapshotTag = tag } }

// WithLimits sets how much is remembered.
func WithLimits(l Limits) Option { return func(s *Server) { s.limits = l } }

// WithClock sets the clock that records are stamped with.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// New returns a server that plays the script.
func New(script *Script, options ...Option) *Server {
	s := &Server{
		script: script, snapshotTag: DefaultSnapshotTag, log: slog.New(slog.DiscardHandler),
		now: time.Now, limits: DefaultLimits, mux: http.NewServeMux(),
	}
	for _, o := range options {
		o(s)
	}
	s.history = newHistory(s.limits)
	s.mux.HandleFunc("POST /v1/chat/completions", s.authorized(s.chat))
	s.mux.HandleFunc("GET /v1/models", s.authorized(s.models))
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	s.mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Requests()) })
	s.mux.HandleFunc("GET /requests/{n}/body", s.requestBody)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "not_found", fmt.Sprintf(
			"%s %s is not served; the base URL of this server ends in /v1, and it serves POST /v1/chat/completions, GET /v1/models, GET /requests, GET /requests/N/body and GET /healthz",
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

// authorized compares digests, so that neither length nor content of the key leaks by time.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	want := sha256.Sum256([]byte("Bearer " + s.apiKey))
	return func(w http.ResponseWriter, r *http.Request) {
		have := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if s.apiKey != "" && subtle.ConstantTimeCompare(want[:], have[:]) != 1 {
			message := "the API key is wrong; send the key that this server was started with as: Authorization: Bearer KEY"
			if r.Header.Get("Authorization") == "" {
				message = "the API key is missing; send it as: Authorization: Bearer KEY"
			}
			s.log.Warn("Request refused", "status", http.StatusUnauthorized, "error", message, "path", r.URL.Path)
			writeError(w, http.StatusUnauthorized, "invalid_api_key", message)
			return
		}
		next(w, r)
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	ids := s.script.models
	if len(ids) == 0 {
		ids = []string{"replay-model"}
	}
	data := []any{}
	for _, id := range ids {
		data = append(data, object{"id": id, "object": "model", "created": 0, "owned_by": "replay-model"})
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": data})
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

// refusal is why a request gets no reply.
type refusal struct {
	status  int
	code    string
	message string
}

// chat reads, decides, accounts and only then speaks: what a client sees first
// is already in the account.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		s.refuseUnread(w, err)
		return
	}
	rec := Record{Time: s.now().UTC(), Status: http.StatusOK, BodyBytes: len(body), BodyDigest: bodyDigest(body)}
	req, err := decodeRequest(body, s.snapshotTag)
	if err != nil {
		s.refuse(w, rec, body, nil, refusal{http.StatusBadRequest, "bad_request", err.Error()})
		return
	}
	v := viewOf(req, body)
	rec.describe(req, &v)
	if len(s.script.models) > 0 && !slices.Contains(s.script.models, req.model) {
		s.refuse(w, rec, body, req, refusal{http.StatusNotFound, "model_not_found", fmt.Sprintf(
			"there is no model %q; the script has %s", cut(req.model), strings.Join(s.script.models, ", "))})
		return
	}
	chosen, err := s.script.choose(&v)
	if chosen != nil {
		rec.Rule = chosen.label()
	}
	if err != nil {
		s.refuse(w, rec, body, req, refusalOf(chosen, err))
		return
	}
	p := promptOf(req)
	rec = s.history.add(rec, body, &p, req.messages, true)
	s.play(r.Context(), w, rec, req, chosen)
}

// refusalOf tells a script without a rule from a rule whose requirement failed.
func refusalOf(chosen *rule, err error) refusal {
	if chosen == nil {
		return refusal{http.StatusBadRequest, "replay_no_rule", err.Error()}
	}
	return refusal{http.StatusBadRequest, "replay_requirement", chosen.label() + ": " + err.Error()}
}

func (r *Record) describe(req *request, v *view) {
	r.Stream = req.stream
	r.Conversation = conversationOf(req)
	r.HeaderDigest = headerDigest(req)
	r.Snapshots = len(v.snapshots)
	if r.Snapshots > 0 {
		r.LastSnapshot = v.snapshots[r.Snapshots-1]
	}
}

// play performs a rule. It is the one place where time passes and bytes leave.
func (s *Server) play(ctx context.Context, w http.ResponseWriter, rec Record, req *request, r *rule) {
	log := s.log.With("n", rec.N, "rule", rec.Rule, "conversation", rec.Conversation)
	if err := sleep(ctx, time.Duration(r.Delay)); err != nil {
		const message = "the delay of the rule was interrupted: the server is stopping, or the client left; send the request again"
		s.history.finish(rec.N, http.StatusServiceUnavailable, message)
		log.Warn("Delay interrupted", "error", err)
		writeError(w, http.StatusServiceUnavailable, "interrupted", message)
		return
	}
	a := answerTo(rec, req.model, r.Reply)
	var err error
	if req.stream {
		err = a.writeStream(w, req.includeUsage)
	} else {
		err = writeJSON(w, http.StatusOK, a.whole())
	}
	if err != nil {
		log.Warn("Client left before the end of the reply", "error", err)
		return
	}
	s.history.finish(rec.N, http.StatusOK, "")
	log.Info("Request answered", "promptTokens", rec.PromptTokens, "cachedTokens", rec.CachedTokens,
		"uncachedTokens", rec.UncachedTokens, "newBytes", rec.NewBytes, "snapshots", rec.Snapshots)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse answers, records and logs a request that gets no reply.
func (s *Server) refuse(w http.ResponseWriter, rec Record, body []byte, req *request, why refusal) {
	rec.Status, rec.Error = why.status, why.message
	if req == nil {
		rec = s.history.add(rec, body, nil, nil, false)
	} else {
		p := promptOf(req)
		rec = s.history.add(rec, body, &p, req.messages, false)
	}
	s.log.Error("Request refused", "n", rec.N, "status", why.status, "code", why.code, "error", why.message)
	writeError(w, why.status, why.code, why.message)
}

// refuseUnread answers a body that did not come whole; there is nothing to account for.
func (s *Server) refuseUnread(w http.ResponseWriter, err error) {
	status, code, message := http.StatusBadRequest, "bad_request", "the request body broke off: "+err.Error()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status, code = http.StatusRequestEntityTooLarge, "too_large"
		message = fmt.Sprintf("the request body exceeds %d bytes; shorten the conversation", MaxBody)
	}
	s.log.Error("Request refused", "status", status, "code", code, "error", message)
	writeError(w, status, code, message)
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	kind := "invalid_request_error"
	if status == http.StatusUnauthorized {
		kind = "authentication_error"
	}
	_ = writeJSON(w, status, object{"error": object{"message": message, "type": kind, "param": nil, "code": code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
