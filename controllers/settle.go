// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// settlePatience is how long an agent has to finish its log before its pod is deleted. A
// pod that is deleted ends in order, too; but its tools end before the agent hears of it, and
// what they did is not known then.
const settlePatience = 10 * time.Second

// leaving reports whether the pod is to go because its session is finished or to be
// suspended, and its agent can be told before.
func (w *world) leaving() bool {
	if w.policy == nil || w.class == nil || !w.podUp() || !w.started() {
		return false
	}
	if c := w.completed(); c != nil {
		return c.Reason != v1alpha1.ReasonStateLost
	}
	return w.suspending()
}

// settle tells an agent that its pod is about to go, and deletes the pod once the agent
// has finished, or has had its time. Who has been told is not told otherwise again: it
// starts nothing any more, whatever is wanted by then.
func (r *SessionReconciler) settle(ctx context.Context, w *world) outcome {
	told := r.memory.told(w.session, w.pod)
	if told.IsZero() && !w.leaving() {
		if o := w.observation.Observed; o != nil && o.Settled && w.completed() == nil && w.persistent() && w.podUp() {
			return r.removePod(ctx, w) // an earlier controller has told it
		}
		return outcome{}
	}
	if !w.podUp() {
		return outcome{}
	}
	if told.IsZero() {
		told = r.memory.tell(w.session, w.pod, w.now)
		log.FromContext(ctx).Info("The pod is about to go")
	}
	e := endpointOf(w)
	switch {
	case !r.Authority.Known(e.Authority): // it takes nothing from us
		return r.removePod(ctx, w)
	case w.leaving():
		d := desiredOf(w, nil)
		d.Messages, d.Stop = nil, w.completed() != nil
		d.Suspend = !d.Stop
		w.observation, _ = r.Links.Set(ctx, e, d)
	}
	o := w.observation
	left := told.Add(settlePatience).Sub(w.now)
	if left > 0 && !o.Unreachable && (o.Observed == nil || !o.Observed.Settled) {
		return outcome{after: left}
	}
	w.lastWord = true
	return r.removePod(ctx, w)
}
