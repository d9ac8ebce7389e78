// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// brokenCharacter stands in a reply where invalidUTF8 puts bytes that are no
// character: a private one, since JSON cannot be encoded with the bytes themselves.
const brokenCharacter = "\uf8ff"

// unknownFinish is a finish reason that no document names.
const unknownFinish = "replay_unknown"

// play performs a rule. It is the one place where time passes and bytes leave.
func (s *Server) play(ctx context.Context, w http.ResponseWriter, d dialect, rec Record, req *request, r *rule, f *fault) {
	log := s.log.With("n", rec.N, "rule", rec.Rule, "conversation", rec.Conversation)
	if err := sleep(ctx, time.Duration(r.Delay)); err != nil {
		const message = "the delay of the rule was interrupted: the server is stopping, or the client left; send the request again"
		s.history.finish(rec.N, http.StatusServiceUnavailable, message)
		log.Warn("Delay interrupted", "error", err)
		writeRefusal(w, d, refusal{status: http.StatusServiceUnavailable, code: "interrupted", message: message})
		return
	}
	p := performance{w: w, d: d, status: http.StatusOK, fault: f, a: answerTo(rec, req, bent(r.Reply, f))}
	err := p.perform(ctx, req.stream)
	switch {
	case errors.Is(err, errBroken):
		s.history.finish(rec.N, p.status, "the script's fault "+rec.Fault+" broke the reply off")
		log.Info("Fault played", "fault", rec.Fault)
		if f.Kind == faultCut {
			panic(http.ErrAbortHandler) // net/http's way to break a connection; nothing is logged
		}
	case err != nil:
		log.Warn("Client left before the end of the reply", "error", err)
	default:
		s.history.finish(rec.N, http.StatusOK, "")
		log.Info("Request answered", "promptTokens", rec.PromptTokens, "cachedTokens", rec.CachedTokens,
			"uncachedTokens", rec.UncachedTokens, "newBytes", rec.NewBytes, "snapshots", rec.Snapshots)
	}
}

// bent is a rule's reply as a fault has it: a copy.
func bent(p *reply, f *fault) reply {
	out := reply{Finish: finishStop}
	if p != nil {
		out = *p
	}
	switch {
	case f == nil:
	case f.Kind == faultInvalidUTF8:
		out.Text += brokenCharacter
	case f.Kind == faultUnknownFinish:
		out.RawFinish = unknownFinish
	}
	return out
}

// performance is one reply on its way out, with the fault that befalls it.
type performance struct {
	w      http.ResponseWriter
	d      dialect
	a      *answer
	fault  *fault // nil: none
	status int
}

func (p *performance) perform(ctx context.Context, stream bool) error {
	if stream {
		return p.stream(ctx)
	}
	return p.whole(ctx)
}

// stream sends the events, each flushed, until the client goes away or the fault strikes.
func (p *performance) stream(ctx context.Context) error {
	p.w.Header().Set("Content-Type", "text/event-stream")
	p.w.Header().Set("Cache-Control", "no-cache")
	n := 0
	for e := range p.d.events(p.a) {
		if p.fault.strikes(n, e) {
			return p.breakOff(ctx)
		}
		if err := p.send(e); err != nil {
			return err
		}
		n++
	}
	return nil
}

func (p *performance) send(e event) error {
	data, err := e.encode()
	if err != nil {
		return err
	}
	return p.write(data)
}

func (p *performance) write(data []byte) error {
	if p.fault != nil && p.fault.Kind == faultInvalidUTF8 {
		data = bytes.ReplaceAll(data, []byte(brokenCharacter), []byte{0xc3, 0x28, 0xff})
	}
	if _, err := p.w.Write(data); err != nil {
		return err
	}
	return http.NewResponseController(p.w).Flush()
}

// breakOff plays the end of a stream that has none.
func (p *performance) breakOff(ctx context.Context) error {
	var err error
	switch p.fault.Kind {
	case faultStall:
		if err = p.write(nil); err == nil {
			<-ctx.Done()
		}
	case faultStreamError:
		err = p.send(p.d.streamError(p.fault.overloaded()))
	case faultEndless:
		p.goOn(p.fault.Of)
	default: // cut, noFinish: what was sent must have left before the end
		err = p.write(nil)
	}
	if err != nil {
		return err
	}
	return errBroken
}

func (f *fault) overloaded() refusal {
	why := refusal{status: http.StatusServiceUnavailable, code: "server_overloaded", message: f.Message}
	if why.message == "" {
		why.message = "a fault of the script: overloaded"
	}
	return why
}

// goOn sends until the client has enough and leaves, or the server stops.
func (p *performance) goOn(of string) {
	if of == endlessLine {
		if p.write([]byte("data: {\"id\":\"")) != nil {
			return
		}
		for p.write([]byte(filler)) == nil {
		}
		return
	}
	for e := range p.d.endless(p.a, of) {
		if p.send(e) != nil {
			return
		}
	}
}

// whole sends the reply in one piece, or what its fault leaves of it.
func (p *performance) whole(ctx context.Context) error {
	var kind faultKind
	if p.fault != nil {
		kind = p.fault.Kind
	}
	switch kind {
	case faultStall:
		<-ctx.Done()
		return errBroken
	case faultStreamError:
		why := p.fault.overloaded()
		p.status = why.status
		writeRefusal(p.w, p.d, why)
		return errBroken
	case faultNoFinish:
		p.a.unfinished = true
	}
	p.w.Header().Set("Content-Type", "application/json")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p.d.whole(p.a)); err != nil {
		return fmt.Errorf("encoding the reply: %w", err)
	}
	switch kind {
	case faultEndless:
		p.goOn(endlessLine)
		return errBroken
	case faultCut:
		if err := p.write(out.Bytes()[:out.Len()/2]); err != nil {
			return err
		}
		return errBroken
	}
	return p.write(out.Bytes())
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
