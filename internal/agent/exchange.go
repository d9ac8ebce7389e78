// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/wire"
)

// The patience with a model endpoint that is in trouble.
const (
	maxAttempts = 5
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 10 * time.Second
	// maxAsked is the longest wait that an endpoint may ask for. Beyond it the turn ends
	// and says so, rather than looking as if it worked.
	maxAsked = 5 * time.Minute
)

// outgoing is a request that is in the log and has not left yet.
type outgoing struct {
	model.Prepared
	provider model.Provider
	header   eventlog.RequestHeader
	attempt  int
}

// request returns the answer to the next request of the turn. A transcript that grew too long is
// made shorter first; one that the endpoint calls too long, once, and then it is asked again.
func (a *Agent) request(ctx context.Context) (model.Answer, error) {
	if err := a.keepWithin(ctx); err != nil {
		return model.Answer{}, err
	}
	sendable := func(int) (outgoing, error) { return a.sendable(ctx) }
	answer, err := a.exchange(ctx, sendable, whatever)
	if failure, typed := errors.AsType[*model.Error](err); !typed || failure.Kind != model.ContextOverflow {
		return answer, err
	}
	shorter, compactErr := a.compact(ctx, eventlog.CauseOverflow)
	switch {
	case compactErr != nil:
		return model.Answer{}, compactErr
	case !shorter:
		return model.Answer{}, err
	}
	return a.exchange(ctx, sendable, whatever)
}

// whatever takes any answer.
func whatever(model.Answer) error { return nil }

// exchange sends what prepare gives, which is new for each attempt, until there is an answer that is of use.
func (a *Agent) exchange(ctx context.Context, prepare func(try int) (outgoing, error), useful func(model.Answer) error) (model.Answer, error) {
	for try := 1; ; try++ {
		out, err := prepare(try)
		if err != nil {
			return model.Answer{}, err
		}
		answer, err := a.tracedAsk(ctx, out)
		if err == nil {
			err = useful(answer)
		}
		if err == nil {
			return answer, nil
		}
		delay, again := a.delay(err, try)
		if !again || ctx.Err() != nil {
			return model.Answer{}, err
		}
		if err := a.record(func(f *fold) []entry { return []entry{f.planRetry(out.attempt, err, delay)} }); err != nil {
			return model.Answer{}, err
		}
		if err := a.o.Sleep(ctx, delay); err != nil {
			return model.Answer{}, err
		}
	}
}

// delay says whether a request is worth repeating after the try-th attempt, and when.
func (a *Agent) delay(err error, try int) (time.Duration, bool) {
	if _, none := errors.AsType[noSummary](err); none {
		return 0, try < maxSummaries
	}
	failure, typed := errors.AsType[*model.Error](err)
	if !typed || !failure.Retryable() || try >= maxAttempts || failure.RetryAfter > maxAsked {
		return 0, false
	}
	d := min(firstDelay<<(try-1), maxDelay)
	d = d/2 + time.Duration(a.o.Random()*float64(d/2)) // spread, so that many agents do not come back at once
	return max(d, failure.RetryAfter), true
}

// planRetry says that the newest request is repeated after a delay.
func (f *fold) planRetry(attempt int, err error, delay time.Duration) entry {
	r := eventlog.Retry{
		Turn: f.turn.number, Step: f.turn.step, Attempt: attempt,
		Message: cutText(err.Error(), 1024), DelayMillis: delay.Milliseconds(),
	}
	if none, ok := errors.AsType[noSummary](err); ok {
		r.Reason, r.Usage = reasonNoSummary, none.used
	}
	if failure, typed := errors.AsType[*model.Error](err); typed {
		r.Reason = failure.Reason()
	}
	return entry{eventlog.TypeRetry, r}
}

// sendable prepares the next request, in a new step where none is open. What it will carry, the
// policy that it states included, is fixed and in the log when it returns.
func (a *Agent) sendable(ctx context.Context) (outgoing, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A request that left while a narrowing is under way would state what no longer holds.
	if err := a.awaitLocked(ctx, a.openLocked); err != nil {
		return outgoing{}, err
	}
	if err := a.recordLocked(a.f.planStep(!a.headerDone, *a.config)...); err != nil {
		return outgoing{}, err
	}
	a.headerDone = true
	request, snapshot, err := a.f.request()
	if err != nil {
		return outgoing{}, err
	}
	return a.prepareLocked(request, func(p model.Prepared) entry { return a.f.planRequest(p, snapshot) })
}

// prepareLocked renders a request and logs that it leaves.
func (a *Agent) prepareLocked(r model.Request, sent func(model.Prepared) entry) (outgoing, error) {
	provider, err := a.providerLocked()
	if err != nil {
		return outgoing{}, err
	}
	prepared, err := provider.Prepare(r)
	if err != nil {
		return outgoing{}, err
	}
	if err := a.recordLocked(sent(prepared)); err != nil {
		return outgoing{}, err
	}
	a.publishLocked()
	return outgoing{prepared, provider, a.f.header.RequestHeader, a.f.turn.attempt}, nil
}

// planStep says what stands before a request: the step, the header where it may have changed, and
// the snapshot, whatever happened to the last one.
func (f *fold) planStep(header bool, c wire.Config) []entry {
	var entries []entry
	if !f.turn.stepOpen {
		entries = append(entries, entry{eventlog.TypeStepStart, eventlog.StepStart{Turn: f.turn.number, Step: f.turn.step + 1}})
	}
	if header {
		entries = append(entries, f.planHeader(c)...)
	}
	return append(entries, f.planSnapshot(f.policy.doc.Policy, f.policy.seq, c.Workspace)...)
}

// providerLocked follows the endpoint and its roots in the configuration, and a key that comes later. The
// model's name and the provider are the header's: where the class names another provider by now, the
// endpoint stays with the old one until the header is renewed.
func (a *Agent) providerLocked() (model.Provider, error) {
	if a.provider != nil && a.config.Model.Provider != a.f.header.Provider {
		return a.provider, nil
	}
	want := modelEndpoint{provider: a.f.header.Provider, baseURL: a.config.Model.BaseURL, caBundle: a.config.Model.CABundle, keyFile: a.o.KeyFile}
	if a.keyFileAbsent() {
		want.keyFile = ""
	}
	if a.provider != nil && a.endpoint == want {
		return a.provider, nil
	}
	p, err := model.New(want.provider, model.Config{BaseURL: want.baseURL, CABundle: want.caBundle, KeyFile: want.keyFile, KeyRead: a.secrets.add})
	if err != nil {
		return nil, err
	}
	if a.provider != nil {
		a.provider.Close()
	}
	a.provider, a.endpoint = p, want
	return p, nil
}

func (a *Agent) keyFileAbsent() bool {
	_, err := os.Stat(a.o.KeyFile)
	return errors.Is(err, os.ErrNotExist)
}

// ask sends a request and mirrors the answer as it comes.
func (a *Agent) ask(ctx context.Context, out outgoing) (model.Answer, error) {
	var answer *model.Answer
	var last error
	live := &live{mirror: a.mirror, secrets: a.secrets}
	defer live.end()
	for d, err := range out.provider.Send(ctx, out.Prepared) {
		if err != nil {
			last = err
			continue
		}
		if d.Answer != nil {
			answer = d.Answer
		}
		live.show(d)
	}
	if answer == nil {
		if last == nil {
			last = errors.New("the model endpoint ended its answer without a word")
		}
		return model.Answer{}, last
	}
	return *answer, nil
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
