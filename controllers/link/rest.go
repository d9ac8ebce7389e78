// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// lingerFor is how long an idle agent is still listened to after it did or was told
	// something: a person who changes one thing often changes another.
	lingerFor = 10 * time.Minute
	// keepMost is how many idle agents are listened to at a time.
	keepMost = 256
	// visitEvery is how often an agent at rest is looked at although nothing calls for it.
	visitEvery = 10 * time.Minute
)

// goal is what an agent says of itself once it is as wanted.
type goal struct {
	digest     policy.Digest
	generation int64
	stop       bool
}

func goalOf(d wire.Desired) goal {
	doc, err := policy.Decode([]byte(d.Policy))
	if err != nil {
		return goal{} // which no agent reaches
	}
	return goal{doc.Digest, d.Stamp.SessionGeneration, d.Stop || d.Suspend}
}

// moment is a point in the life of an agent.
type moment struct{ boot, revision uint64 }

func momentOf(o *wire.Observed) moment { return moment{o.Boot, o.Revision} }

// Wrote says that everything which follows from an observation is written, so that
// nothing of it is lost when the connection ends.
func (l *Links) Wrote(e Endpoint, o *wire.Observed) {
	l.mu.Lock()
	k := l.links[e.Session]
	l.mu.Unlock()
	if k == nil || !k.endpoint.same(e) || o == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written = momentOf(o)
	if k.interrupt != nil && k.restsLocked() {
		k.interrupt()
	}
}

// idleLocked reports whether nothing is to be expected of the agent before it is told
// something: it has taken what is wanted, answered every message and runs nothing. What it
// says then changes only with its containers, which the kubelet reports.
func (k *link) idleLocked() bool {
	o := k.observed
	switch {
	case o == nil || k.trouble != "" || k.refused != nil || k.pushed != k.version || k.goal.stop:
		return false
	case o.Activity.State != wire.Idle || o.Activity.Calls > 0 || o.Activity.Terminals > 0 || len(o.Unconfirmed) > 0:
		return false
	case o.Applied == nil || o.Applied.Digest != k.goal.digest || o.Applied.Stamp.SessionGeneration != k.goal.generation:
		return false
	}
	return !slices.ContainsFunc(o.Problems, pressing) &&
		!slices.ContainsFunc(o.Containers, func(c wire.Container) bool { return !c.Connected })
}

// pressing tells problems that may pass by themselves from those of the last turn, which
// only another turn can end.
func pressing(p wire.Problem) bool {
	return p.Reason != wire.ModelUnavailable && p.Reason != wire.ModelKeyMissing
}

func (k *link) restsLocked() bool {
	return k.idleLocked() && k.written == momentOf(k.observed) && !time.Now().Before(k.linger)
}

// rest ends the link's goroutine when there is nothing to listen for. What is kept is
// small: the desired state is the caller's to bring again.
func (k *link) rest() bool {
	k.mu.Lock()
	rests, leaves := k.restLocked()
	k.mu.Unlock()
	if leaves != nil {
		leaves.letGo()
	}
	return rests
}

// restLocked also returns the link that has to make room for this one.
func (k *link) restLocked() (rests bool, leaves *link) {
	switch {
	case !k.running: // ended
		return true, nil
	case !k.idleLocked():
		k.linger = time.Time{}
		k.options.kept.remove(k)
		return false, nil
	case k.linger.IsZero() && k.visit:
		k.linger = time.Now()
	case k.linger.IsZero():
		k.linger = time.Now().Add(k.options.Linger)
		leaves = k.options.kept.add(k)
	}
	if !k.restsLocked() {
		return false, leaves
	}
	k.options.kept.remove(k)
	short := *k.observed
	short.Messages = nil // they are written
	k.observed, k.want = &short, nil
	k.running, k.pushed, k.linger = false, 0, time.Time{}
	wait := k.options.Visit
	k.alarm = time.AfterFunc(wait-wait/5+rand.N(2*wait/5), k.ring)
	k.options.held.Add(-1)
	return true, leaves
}

// ring has a session looked at that has been at rest for long.
func (k *link) ring() {
	k.mu.Lock()
	k.due = !k.running && k.ctx.Err() == nil
	due := k.due
	k.mu.Unlock()
	if due {
		k.wake()
	}
}

func (k *link) startLocked() {
	if k.ctx.Err() != nil {
		return
	}
	if k.alarm != nil {
		k.alarm.Stop()
	}
	k.running, k.due, k.pushed, k.alarm = true, false, 0, nil
	k.options.held.Add(1)
	go k.run()
}

// end ends a link for good.
func (k *link) end() {
	k.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options.kept.remove(k)
	if k.alarm != nil {
		k.alarm.Stop()
	}
	if k.running {
		k.running = false
		k.options.held.Add(-1)
	}
}
