// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Authority signs what agents identify themselves with.
type Authority interface {
	// Hash names the root that signs for new pods, see wire.CAHash.
	Hash() string
	// Known reports whether the operator can speak with an agent that believes a root.
	Known(hash string) bool
	Agent(hash, sessionUID, incarnation string) (files map[string][]byte, err error)
}

// Links reach the agents. They never dial in their caller.
type Links interface {
	Set(ctx context.Context, e link.Endpoint, d wire.Desired) (o link.Observation, fresh bool)
	Last(e link.Endpoint) link.Observation
	Wrote(e link.Endpoint, o *wire.Observed)
	Forget(session types.NamespacedName)
}

// SessionReconciler reconciles AgentSessions and the messages to them.
type SessionReconciler struct {
	Client     client.Client // reads from the cache
	Live       client.Reader // reads from the apiserver
	Links      Links
	Authority  Authority
	Recorder   events.EventRecorder
	AgentImage string // where a class names none
	Operator   podspec.Operator
	Now        func() time.Time

	memory memory
	queue  atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// +kubebuilder:rbac:groups=agentsession.dev,resources=agentsessions/status,verbs=patch

// Reconcile takes one look at a session and does what is to be done now. The request
// may name a session that does not exist, because there is a message to it.
func (r *SessionReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return outcome{err: err}.result()
	}
	if w.session == nil {
		r.Links.Forget(req.NamespacedName)
		r.memory.forget(req.NamespacedName)
		return r.tellSenders(ctx, w).result()
	}
	if w.session.DeletionTimestamp != nil {
		r.Links.Forget(req.NamespacedName) // the rest is the garbage collector's
		return reconcile.Result{}, nil
	}
	before := [2]bool{w.started(), w.completed() != nil}
	out := r.step(ctx, w)
	if out.err == nil && before != [2]bool{w.started(), w.completed() != nil} {
		// It is durable now that the agent runs, so that it may be told what is wanted; or
		// that the session is finished, so that what is left may go.
		out = out.and(r.step(ctx, w))
	}
	return out.result()
}

func (r *SessionReconciler) step(ctx context.Context, w *world) outcome {
	w.resolve()
	out := r.widenNetwork(ctx, w)
	out = out.and(r.ensurePod(ctx, w))
	out = out.and(r.mendLinkSecret(ctx, w))
	out = out.and(r.setDesired(ctx, w))
	out = out.and(r.settleNetwork(ctx, w))
	out = out.and(r.endOverdue(ctx, w))
	out = out.and(r.settle(ctx, w))
	out = out.and(r.replaceOutdated(ctx, w))
	r.noteOutOfMemory(w)
	// A session may be finished once the senders are told, and not before.
	written := r.tellSenders(ctx, w)
	written = written.and(r.writeStatus(ctx, w))
	if w.observation.Observed != nil && written.err == nil && !written.stale {
		r.Links.Wrote(endpointOf(w), w.observation.Observed)
	}
	out = out.and(written)
	if out.err == nil {
		out = out.and(r.pruneMessages(ctx, w))
		out = out.and(r.expire(ctx, w))
	}
	return out.and(outcome{after: w.nextTime()})
}

// resolve sets the policy, or why there is none.
func (w *world) resolve() {
	w.policy, w.refused = nil, w.noClass
	if w.class != nil {
		w.policy, w.refused = resolve(w.session, w.class, w.namespace, w.pod)
	}
}

// writeStatus writes the status if it changed; counters alone at most every 30 s.
func (r *SessionReconciler) writeStatus(ctx context.Context, w *world) outcome {
	before, after := w.session.Status, statusOf(w)
	r.memory.take(w.session, w.now)
	switch compare(before, after) {
	case unchanged:
		return outcome{}
	case countersOnly:
		if wait := r.memory.lastWrite(w.session).Add(countersEvery).Sub(w.now); wait > 0 && !w.lastWord {
			return outcome{after: wait}
		}
	case changedMore:
	}
	begin := r.Now()
	base := w.session.DeepCopy()
	next := w.session.DeepCopy()
	next.Status = after
	if err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return broke(err, "writing status")
	}
	r.memory.wrote(next, w.now)
	w.session = next
	if isTrue(after.Conditions, v1alpha1.ConditionModeApplied) {
		if since, taken := r.memory.hit(next); !since.IsZero() {
			observeApplied(since, taken, begin, r.Now())
		}
	}
	notes := notesOn(&before, &after)
	r.record(next, notes)
	for _, n := range notes {
		log.FromContext(ctx).Info("Session changed", "reason", n.reason, "message", n.text)
	}
	return outcome{}
}

func (o outcome) result() (reconcile.Result, error) {
	if o.err != nil {
		countCause(causeError)
		return reconcile.Result{}, o.err
	}
	if o.after > 0 {
		countCause(causeTime)
	}
	return reconcile.Result{RequeueAfter: o.after}, nil
}

// Wake has a session looked at, because its agent said something new.
func (r *SessionReconciler) Wake(session types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		countCause(causeAgent)
		(*q).Add(reconcile.Request{NamespacedName: session})
	}
}
