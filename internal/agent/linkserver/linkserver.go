// SPDX-License-Identifier: Apache-2.0

// Package linkserver is the agent's end of the link: the one port that it listens on.
// It decides who may speak (the operator, by its certificate and nobody else),
// how much, and how long; what a desired state means is its handler's to say.
package linkserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

// Handler takes pushes and answers polls.
type Handler interface {
	// Heard is told of each request before what it asks for is done.
	Heard()
	// SetDesired takes a push; applied is false while it still drains. A
	// *StatusError says that nothing changed, and why.
	SetDesired(ctx context.Context, d wire.Desired) (o wire.Observed, applied bool, err error)
	// Observed waits until the revision is another one than after, or ctx ends.
	Observed(ctx context.Context, after uint64) wire.Observed
}

// StatusError is a refusal with the HTTP status that says it.
type StatusError struct {
	Status int
	wire.Refusal
}

func (e *StatusError) Error() string { return e.Refusal.Error }

const (
	proofTimeout = 2 * time.Second                   // for TLS, and for the header of each request
	bodyTimeout  = wire.PollTimeout + 15*time.Second // it runs while a poll waits, too
	atTheDoor    = 64                                // connections that have not shown their certificate yet
	maxHeader    = 16 << 10
)

// Serve answers on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, id *Identity, h Handler, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+wire.DesiredPath, func(w http.ResponseWriter, r *http.Request) { h.Heard(); put(w, r, id, h) })
	mux.HandleFunc("GET "+wire.ObservedPath, func(w http.ResponseWriter, r *http.Request) { h.Heard(); poll(w, r, h) })
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: proofTimeout, ReadTimeout: bodyTimeout, MaxHeaderBytes: maxHeader,
		IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	guarded := guard(ctx, l, id)
	defer guarded.wait()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(guarded)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving the link: %w", err)
}

func put(w http.ResponseWriter, r *http.Request, id *Identity, h Handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxDesired))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			refuse(w, &StatusError{http.StatusRequestEntityTooLarge, wire.Refusal{Error: fmt.Sprintf("the body is larger than %d bytes", wire.MaxDesired)}})
			return
		}
		refuse(w, &StatusError{http.StatusBadRequest, wire.Refusal{Error: "reading the body: " + err.Error()}})
		return
	}
	d, err := decode(body, id)
	if err != nil {
		refuse(w, err)
		return
	}
	o, applied, err := h.SetDesired(r.Context(), d)
	switch {
	case err != nil:
		refuse(w, err)
	case applied:
		answer(w, http.StatusOK, fit(o))
	default:
		answer(w, http.StatusAccepted, fit(o))
	}
}

// decode reads whom a push is for before it reads the rest, which another version may
// write in another way.
func decode(body []byte, id *Identity) (wire.Desired, error) {
	var to struct {
		Wire        int    `json:"wire"`
		SessionUID  string `json:"sessionUID"`
		Incarnation string `json:"incarnation"`
	}
	var d wire.Desired
	if err := json.Unmarshal(body, &to); err != nil {
		return d, &StatusError{http.StatusBadRequest, wire.Refusal{Error: err.Error()}}
	}
	if to.Wire != wire.Version || to.SessionUID != id.SessionUID || to.Incarnation != id.Incarnation {
		return d, &StatusError{http.StatusMisdirectedRequest, wire.Refusal{Error: fmt.Sprintf(
			"this is session %s, incarnation %s, wire version %d; the push is for %.60q, %.60q, %d",
			id.SessionUID, id.Incarnation, wire.Version, to.SessionUID, to.Incarnation, to.Wire)}}
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, &StatusError{http.StatusBadRequest, wire.Refusal{Error: err.Error()}}
	}
	return d, nil
}

func poll(w http.ResponseWriter, r *http.Request, h Handler) {
	after := uint64(0)
	if s := r.URL.Query().Get("after"); s != "" {
		var err error
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			refuse(w, &StatusError{http.StatusBadRequest, wire.Refusal{Error: fmt.Sprintf("after: %.40q is not a revision", s)}})
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wire.PollTimeout)
	defer cancel()
	answer(w, http.StatusOK, fit(h.Observed(ctx, after)))
}

func refuse(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*StatusError](err)
	if !ok {
		e = &StatusError{http.StatusInternalServerError, wire.Refusal{Error: err.Error()}}
	}
	b, _ := json.Marshal(e.Refusal)
	answer(w, e.Status, b)
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// fit renders a state. Replies are taken away from the oldest messages on until it fits
// the bound that the other side reads.
func fit(o wire.Observed) []byte {
	for i := 0; ; i++ {
		b, err := json.Marshal(o)
		if err != nil || len(b) <= wire.MaxObserved || i == len(o.Messages) {
			return b
		}
		if i == 0 {
			o.Messages = append([]wire.MessageStatus{}, o.Messages...)
		}
		o.Messages[i].Reply = ""
	}
}
