// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// agent is one pod's agent. Its log outlives it where its volume does.
type agent struct {
	podUID string
	*agentLog
	observed wire.Observed
	silent   bool // it does not answer
	drains   bool // what it is given is not confirmed yet
	pending  *wire.Applied
}

// agentLog is what an agent has in its log.
type agentLog struct {
	boots     uint64
	seq       uint64
	inForce   policy.Policy
	stamp     *policy.Stamp
	messages  []wire.MessageStatus
	confirmed []wire.Applied // all that were
	turns     uint64
}

// boot starts the agent of a pod, or starts it anew.
func (a *agent) boot(d wire.Desired, containers []string) {
	full := wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7, Layers: []string{"landlock", "seccomp"}}
	a.boots++
	a.pending = nil
	a.observed = wire.Observed{Boot: a.boots, PodUID: a.podUID, SessionUID: d.SessionUID, Incarnation: d.Incarnation}
	for _, name := range containers {
		a.observed.Containers = append(a.observed.Containers, wire.Container{Name: name, Connected: true, Report: full})
	}
	a.said()
}

// said makes what the agent says of itself agree with its log.
func (a *agent) said() {
	a.seq++
	a.observed.Revision++
	a.observed.Messages = slices.Clone(a.messages[max(0, len(a.messages)-64):])
	a.observed.Log = wire.LogHead{Seq: a.seq, Digest: fmt.Sprint("d", a.seq)}
	a.observed.Activity.Turns = a.turns
	a.observed.Activity.State = wire.Idle
	if slices.ContainsFunc(a.messages, func(m wire.MessageStatus) bool { return m.State == wire.Delivered }) {
		a.observed.Activity.State = wire.InTurn
	}
	if a.observed.Applied == nil || len(a.observed.Problems) > 0 {
		a.observed.Activity.State = wire.Paused
	}
}

func (a *agent) says() *wire.Observed {
	o := a.observed
	o.Unconfirmed = slices.Clone(o.Unconfirmed)
	o.Problems = slices.Clone(o.Problems)
	o.Containers = slices.Clone(o.Containers)
	return &o
}

// take is a push. It returns the stamp in force where that is not taken.
func (a *agent) take(d wire.Desired) *policy.Stamp {
	doc, err := policy.Decode([]byte(d.Policy))
	if err != nil {
		panic(err)
	}
	if policy.Accept(a.stamp, a.inForce, d.Stamp, doc.Policy, d.Replaces) != "" {
		return a.stamp
	}
	before := len(a.messages)
	if (d.Stop || d.Suspend) && !a.observed.Settled && !a.drains {
		a.observed.Settled = true
		a.said()
	}
	for _, m := range d.Messages {
		if !slices.ContainsFunc(a.messages, func(s wire.MessageStatus) bool { return s.UID == m.UID }) {
			a.messages = append(a.messages, wire.MessageStatus{UID: m.UID, State: wire.Delivered, Sequence: a.seq + 1})
		}
	}
	now := a.observed.Applied
	if a.pending != nil {
		now = a.pending
	}
	if now != nil && now.Digest == doc.Digest && now.Stamp == d.Stamp {
		if len(a.messages) > before {
			a.said()
		}
		return nil
	}
	a.inForce, a.stamp = doc.Policy, new(d.Stamp)
	a.pending = &wire.Applied{Digest: doc.Digest, Stamp: d.Stamp, Seq: a.seq, SnapshotSeq: a.seq + 1}
	if a.drains {
		a.observed.Unconfirmed = []string{wire.ToolsRW}
		a.said()
		return nil
	}
	a.confirm()
	return nil
}

func (a *agent) confirm() {
	if a.pending != nil {
		a.observed.Applied, a.pending = a.pending, nil
		a.confirmed = append(a.confirmed, *a.observed.Applied)
	}
	a.observed.Unconfirmed = nil
	a.said()
}

// answer ends the turn of the oldest open message.
func (a *agent) answer(reason string) {
	i := slices.IndexFunc(a.messages, func(m wire.MessageStatus) bool { return m.State == wire.Delivered })
	if i < 0 || a.observed.Activity.State != wire.InTurn || a.observed.Settled {
		return
	}
	a.turns++
	m := &a.messages[i]
	m.State, m.Turn, m.Reason, m.Reply = wire.Answered, a.turns, reason, "done"
	a.said()
}

// links are one controller's links: they know what that controller has heard.
type links struct {
	now    func() time.Time
	reach  func(link.Endpoint) *agent
	pushed func(link.Endpoint, wire.Desired)
	open   map[types.NamespacedName]*heard
}

type heard struct {
	endpoint link.Endpoint
	want     *wire.Desired
	told     bool // the agent has answered to it
	o        link.Observation
	since    time.Time
}

func sameEndpoint(a, b link.Endpoint) bool {
	a.Pulse, b.Pulse = 0, 0
	return a == b
}

func (l *links) Set(_ context.Context, e link.Endpoint, d wire.Desired) (link.Observation, bool) {
	h := l.open[e.Session]
	if h == nil || !sameEndpoint(h.endpoint, e) {
		h = &heard{endpoint: e}
		l.open[e.Session] = h
	}
	if h.want == nil || !reflect.DeepEqual(*h.want, d) {
		h.want, h.told, h.o.Refused = &d, false, nil
	}
	l.exchange(h)
	return h.o, h.told
}

// exchange asks the agent once and reports whether it says something new.
func (l *links) exchange(h *heard) bool {
	a := l.reach(h.endpoint)
	if a == nil || a.silent {
		h.o.Trouble = "no answer"
		if h.since.IsZero() {
			h.since = l.now()
		}
		was := h.o.Unreachable
		h.o.Unreachable = l.now().Sub(h.since) >= 30*time.Second
		return h.o.Unreachable != was
	}
	before := h.o
	h.since, h.o.Trouble, h.o.Unreachable = time.Time{}, "", false
	if h.want != nil && (!h.told || before.Observed == nil || before.Observed.Boot != a.observed.Boot) {
		l.pushed(h.endpoint, *h.want)
		h.o.Refused, h.told = a.take(*h.want), true
	}
	h.o.Observed = a.says()
	return before.Unreachable || before.Observed == nil || before.Refused != h.o.Refused || before.Observed.Boot != h.o.Observed.Boot || before.Observed.Revision != h.o.Observed.Revision
}

func (l *links) Last(e link.Endpoint) link.Observation {
	if h := l.open[e.Session]; h != nil && sameEndpoint(h.endpoint, e) {
		return h.o
	}
	return link.Observation{}
}

func (l *links) Wrote(link.Endpoint, *wire.Observed) {}

func (l *links) Forget(session types.NamespacedName) { delete(l.open, session) }

// hear asks all agents and returns the sessions whose agent says something new.
func (l *links) hear() []types.NamespacedName {
	var woken []types.NamespacedName
	byName := func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }
	for _, name := range slices.SortedFunc(maps.Keys(l.open), byName) {
		if l.exchange(l.open[name]) {
			woken = append(woken, name)
		}
	}
	return woken
}
