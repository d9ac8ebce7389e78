// SPDX-License-Identifier: Apache-2.0

package link

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// link is one session's link. While there is something to hear, its goroutine pushes what
// is wanted until the agent has answered to it, then polls for what changes. Once the agent
// is idle and all that it said is written, the goroutine ends and with it the connection.
//
//	set ──► want, version ──► run: push ──► accept, refuse ──► waiting set, or wake
//	 ▲                          └─ poll ◄─┘ (interrupted by the next set)
//	 │                              └──► rest (rest.go)
//	 └── the session is woken when a visit is due ◄─┘
type link struct {
	endpoint Endpoint
	options  *Options
	ctx      context.Context
	cancel   context.CancelFunc
	wake     func()

	mu        sync.Mutex
	running   bool              // the goroutine is there; otherwise the link rests
	want      []byte            // the desired state; nil at rest
	sum       [sha256.Size]byte // of want
	goal      goal              // what the agent says once it is as wanted
	pulse     uint64            // of the pod, see Endpoint
	version   uint64            // of want
	pushed    uint64            // the version that the agent has answered to, in this connection
	replied   uint64            // the newest version that the agent has answered to at all
	interrupt func()            // ends the poll that is under way

	observed *wire.Observed
	refused  *policy.Stamp
	trouble  string
	since    time.Time // when exchanges began to fail; zero while they succeed
	lost     bool      // they have failed for unreachableAfter

	written moment        // up to here all is written that the agent said
	linger  time.Time     // until when an idle agent is listened to; zero while it is not idle
	visit   bool          // it was dialled to look at it, not to change something
	due     bool          // the next visit
	alarm   *time.Timer   // makes it due
	place   *list.Element // among those that are kept; theirs to change

	poked    chan struct{} // ends a pause between tries: something changed
	answered chan struct{} // closed and replaced with every change
	waiting  int           // callers of set that wait for it
	owed     bool          // a caller of set left without an answer
}

func (k *link) set(ctx context.Context, body []byte, g goal, pulse uint64) (Observation, bool) {
	sum := sha256.Sum256(body)
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.version == 0 || k.sum != sum
	beats := k.pulse != pulse
	k.pulse = pulse
	if changed {
		k.want, k.sum, k.goal, k.version, k.refused = body, sum, g, k.version+1, nil
		k.visit, k.linger = false, time.Time{}
		if k.interrupt != nil {
			k.interrupt()
		}
	}
	if k.running && (changed || beats) && !k.since.IsZero() {
		select {
		case k.poked <- struct{}{}:
		default:
		}
	}
	if !k.running && (changed || beats || k.due) {
		k.want, k.visit = body, !changed || k.version == 1
		k.startLocked()
	}
	if changed && k.since.IsZero() { // who does not answer holds up nobody
		k.waitLocked(ctx, k.version)
	}
	fresh := k.replied == k.version
	k.owed = !fresh
	return k.observationLocked(), fresh
}

// waitLocked waits until the agent has answered to a version, fails to, or the time is over.
func (k *link) waitLocked(ctx context.Context, version uint64) {
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	k.waiting++
	defer func() { k.waiting-- }()
	for k.version == version && k.replied < version && k.since.IsZero() {
		answered := k.answered
		k.mu.Unlock()
		var over bool
		select {
		case <-answered:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		k.mu.Lock()
		if over {
			return
		}
	}
}

func (k *link) observationLocked() Observation {
	return Observation{Observed: k.observed, Refused: k.refused, Trouble: k.trouble, Unreachable: k.lost}
}

func (k *link) run() {
	agent := newPeer(k.endpoint, *k.options)
	defer agent.close()
	retry := firstRetry
	for k.ctx.Err() == nil {
		if k.rest() {
			return
		}
		err := k.exchange(k.ctx, agent)
		switch {
		case err == nil:
			retry = firstRetry
			continue
		case k.ctx.Err() != nil:
			return
		case errors.Is(err, errOverruled):
			retry = max(retry, time.Second) // two operators must not take turns as fast as they can
		case k.failed(err):
			retry = lostRetry
		}
		select {
		case <-k.ctx.Done():
		case <-k.poked:
			retry = firstRetry
		case <-time.After(retry/2 + rand.N(retry)):
		}
		retry = min(2*retry, max(lastRetry, retry))
	}
}

// exchange makes one request: it pushes what the agent has not answered to, or else polls.
func (k *link) exchange(ctx context.Context, agent *peer) error {
	k.mu.Lock()
	body, version, push := k.want, k.version, k.pushed != k.version
	k.mu.Unlock()
	if push {
		return k.push(ctx, agent, body, version)
	}
	return k.poll(ctx, agent)
}

func (k *link) push(ctx context.Context, agent *peer, body []byte, version uint64) error {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	o, err := agent.put(ctx, body)
	if conflict, ok := errors.AsType[*conflictError](err); ok {
		k.options.Failed(kindConflict)
		k.answer(version, nil, conflict.stamp)
		return nil
	}
	if err != nil {
		return err
	}
	k.answer(version, o, nil)
	return nil
}

func (k *link) poll(ctx context.Context, agent *peer) error {
	ctx, cancel := context.WithTimeout(ctx, wire.PollTimeout+pushTimeout)
	defer cancel()
	k.mu.Lock()
	if k.pushed != k.version { // set came in between
		k.mu.Unlock()
		return nil
	}
	var interrupted bool
	k.interrupt = func() { interrupted = true; cancel() }
	if !k.linger.IsZero() {
		interrupt := k.interrupt
		over := time.AfterFunc(time.Until(k.linger), func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.restsLocked() {
				interrupt()
			}
		})
		defer over.Stop()
	}
	var revision uint64
	if k.observed != nil {
		revision = k.observed.Revision
	}
	k.mu.Unlock()

	o, err := agent.get(ctx, revision)

	k.mu.Lock()
	k.interrupt = nil
	stopped := interrupted
	k.mu.Unlock()
	switch {
	case err != nil && stopped:
		return nil
	case err != nil:
		return err
	}
	if k.answer(0, o, nil) {
		return errOverruled
	}
	return nil
}

// errOverruled says that another operator gave the agent another policy: one that was elected
// before, and whose last push narrowed, which is never refused.
var errOverruled = errors.New("another policy than the one that was pushed is applied")

// overruled reports whether the agent changed to something else than what is wanted.
func (g goal) overruled(before, now *wire.Observed) bool {
	if before == nil || before.Applied == nil || now.Applied == nil || before.Boot != now.Boot {
		return false
	}
	was, is := before.Applied, now.Applied
	changed := was.Seq != is.Seq || was.Digest != is.Digest || was.Stamp.SessionGeneration != is.Stamp.SessionGeneration
	return changed && (is.Digest != g.digest || is.Stamp.SessionGeneration != g.generation)
}

// answer takes in what the agent said: to a push of a version, or (0) to a poll.
// It reports whether what was pushed has to be pushed again.
func (k *link) answer(version uint64, o *wire.Observed, refused *policy.Stamp) (overruled bool) {
	k.mu.Lock()
	news := k.trouble != "" || k.lost || refused != nil
	k.trouble, k.since, k.lost = "", time.Time{}, false
	if o != nil {
		before := k.observed
		news = news || before == nil || before.Boot != o.Boot || before.Revision != o.Revision
		if before != nil && before.Boot != o.Boot {
			k.pushed = 0 // an agent that was started anew has been told nothing yet
		}
		if overruled = version == 0 && k.goal.overruled(before, o); overruled {
			k.pushed = 0
		}
		k.observed = o
		if o.Activity.State != wire.Idle {
			k.visit = false // somebody works with it
		}
	}
	if version != 0 {
		k.pushed, k.replied = version, max(k.replied, version)
		if version == k.version {
			k.refused = refused
			news = news || k.owed
			k.owed = false
		}
	}
	k.toldLocked(news)
	return overruled
}

// failed takes in that an exchange failed, and reports whether the agent counts as
// unreachable.
func (k *link) failed(err error) (lost bool) {
	k.options.Failed(kindOf(err))
	trouble := describe(err)
	k.mu.Lock()
	now := time.Now()
	if k.since.IsZero() {
		k.since = now
	}
	lost = now.Sub(k.since) >= unreachableAfter
	news := lost && (!k.lost || trouble != k.trouble)
	k.trouble, k.lost = trouble, lost
	k.pushed = 0 // whoever answers next may be an agent that was started anew
	k.toldLocked(news)
	return lost
}

// toldLocked lets waiting callers look again, or wakes the session where none is
// waiting. It unlocks.
func (k *link) toldLocked(news bool) {
	close(k.answered)
	k.answered = make(chan struct{})
	wake := news && k.waiting == 0
	k.mu.Unlock()
	if wake {
		k.wake()
	}
}
