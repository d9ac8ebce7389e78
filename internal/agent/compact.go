// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
)

// How a transcript is kept within the model's window.
const (
	// fullPercent is how much of the window may be in use before the next request.
	fullPercent = 80
	// tokenBytes is how many bytes a token has at least, about, where nobody counted.
	tokenBytes = 3
	// A result is oversized beyond the fiftieth part of the window, within these bytes.
	minResult, maxResult = 1 << 10, 16 << 10
	// maxSummaries is how often a summary is asked for at once. After that the transcript has to grow by
	// the tenth part of the window before it is asked for again.
	maxSummaries = 3
	growTenth    = 10
)

const reasonNoSummary = "NoSummary"

// noSummary is an answer that should be a summary and says nothing.
type noSummary struct{ used eventlog.Usage }

func (noSummary) Error() string {
	return "the model was asked to sum up the conversation and said nothing: send the message again, or create a new session"
}

const askSummary = "The conversation is about to be shortened. Write a summary that takes the place of everything above: " +
	"what was asked for, and by whom; what was found and done, with names of files, commands and their outcome; what was denied; what is still to be done. " +
	"Leave out the policy of the session: it is stated anew. Answer with the summary alone and call no tool."

const summaryLead = "Summary of the conversation so far, which was shortened. Written by the assistant:\n\n"

// window is the size that the transcript is to be kept in, in tokens, and how much of it is in use.
type window struct{ size, used int64 }

func (w window) full() bool { return w.used*100 >= w.size*fullPercent }

// used is about how many tokens the next request has.
func (f *fold) used() int64 {
	bytes := int64(f.history.Bytes())
	if f.measured.tokens == 0 {
		return (bytes + int64(len(f.header.System)+len(f.header.Tools))) / tokenBytes
	}
	more := bytes - int64(f.measured.bytes)
	if more < 0 {
		return max(f.measured.tokens+more/(tokenBytes+1), 0)
	}
	return f.measured.tokens + more/tokenBytes
}

// parting says how to make the transcript shorter: which results to cut, and up to which event it is
// summed up. The newest quarter of the window stays as it is.
type parting struct {
	cut   []string
	keep  int
	saved int64 // tokens, by cutting
	upTo  uint64
}

// part is false where there is hardly anything to win.
func (f *fold) part(w window) (parting, bool) {
	upTo, older := f.history.Older(int(w.size / 4 * tokenBytes))
	if f.header.seq == 0 || int64(older)/tokenBytes < w.size/10 {
		return parting{}, false
	}
	p := parting{upTo: upTo, keep: int(min(max(w.size/50*tokenBytes, minResult), maxResult))}
	cut, saved := f.history.Oversized(upTo, p.keep)
	p.cut, p.saved = cut, int64(saved)/(tokenBytes+1)
	return p, true
}

// keepWithin makes the transcript shorter where it fills the window. It is not the end when that
// fails: there is room left, and an endpoint that refuses says so.
func (a *Agent) keepWithin(ctx context.Context) error {
	a.mu.Lock()
	w := window{a.config.Model.ContextWindow, a.f.used()}
	bytes := a.f.history.Bytes()
	wait := bytes < a.nextSummary
	a.mu.Unlock()
	if w.size == 0 || !w.full() || wait {
		return nil
	}
	_, err := a.compact(ctx, eventlog.CauseWindow)
	if err != nil && ctx.Err() == nil && a.fatalError() == nil && a.root.Err() == nil {
		a.mu.Lock()
		a.nextSummary = bytes + int(w.size/growTenth*tokenBytes)
		a.mu.Unlock()
		a.o.Log.Warn("The conversation could not be shortened; going on with all of it", "error", eventlog.Redact(err.Error(), a.secrets.texts()))
		return nil
	}
	return err
}

// compact cuts oversized results first; where that is not enough, a summary takes the place of all
// but the newest part. It reports whether the transcript is shorter now.
func (a *Agent) compact(ctx context.Context, cause string) (bool, error) {
	a.mu.Lock()
	w := window{a.config.Model.ContextWindow, a.f.used()}
	if cause == eventlog.CauseOverflow && (w.size == 0 || w.size > w.used) {
		w.size = w.used // whatever was configured or estimated, it did not fit
	}
	p, worth := a.f.part(w)
	var err error
	if worth && len(p.cut) > 0 {
		err = a.recordLocked(entry{eventlog.TypeCompaction, eventlog.Compaction{UpTo: p.upTo, Cut: p.cut, Keep: p.keep, Cause: cause}})
	}
	a.mu.Unlock()
	w.used -= p.saved
	if err != nil || !worth || !w.full() {
		return worth, err
	}
	if err := a.summarize(ctx, p.upTo, cause); err != nil {
		return false, err
	}
	return true, nil
}

// summarize asks the model for a summary and puts it in the place of what it sums up.
func (a *Agent) summarize(ctx context.Context, upTo uint64, cause string) error {
	text, last := "", 0
	answer, err := a.exchange(ctx, func(try int) (outgoing, error) { last = try; return a.summarizable(ctx, upTo, try) }, func(answer model.Answer) error {
		if text = strings.TrimSpace(answer.Content); text == "" {
			return noSummary{usageOf(answer)}
		}
		return nil
	})
	if _, ok := errors.AsType[noSummary](err); ok { // the tokens count all the same
		err = errors.Join(err, a.record(func(f *fold) []entry { return []entry{f.planRetry(last, err, 0)} }))
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.recordLocked(entry{eventlog.TypeCompaction, eventlog.Compaction{
		UpTo: upTo, Summary: runtimecontext.ResultText(summaryLead + text), Cause: cause, Usage: usageOf(answer),
	}}); err != nil {
		return err
	}
	a.headerDone = false // the prefix is new from here on, so a changed class costs nothing
	a.publishLocked()
	return nil
}

// summarizable prepares the request for a summary; like every request, it states the standing policy.
func (a *Agent) summarizable(ctx context.Context, upTo uint64, try int) (outgoing, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.awaitLocked(ctx, a.openLocked); err != nil {
		return outgoing{}, err
	}
	if err := a.recordLocked(a.f.planSnapshot(a.f.policy.doc.Policy, a.f.policy.seq, a.config.Workspace)...); err != nil {
		return outgoing{}, err
	}
	request, snapshot, err := a.f.summaryRequest(upTo, askSummary)
	if err != nil {
		return outgoing{}, err
	}
	out, err := a.prepareLocked(request, func(p model.Prepared) entry { return a.f.planSummaryRequest(p, snapshot, upTo, try) })
	out.attempt = try
	return out, err
}
