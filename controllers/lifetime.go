// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// +kubebuilder:rbac:groups=agentsession.dev,resources=agentsessions,verbs=delete

// untilAfter is how long it is from now until so many seconds after a time; 0 or less
// when that is past. ok is false when there is no such time.
func (w *world) untilAfter(t time.Time, seconds *int64) (wait time.Duration, ok bool) {
	if seconds == nil || t.IsZero() {
		return 0, false
	}
	return t.Add(time.Duration(*seconds) * time.Second).Sub(w.now), true
}

func (w *world) past(t time.Time, seconds *int64) bool {
	wait, ok := w.untilAfter(t, seconds)
	return ok && wait <= 0
}

// startTime is when the session started; zero when it has not.
func (w *world) startTime() time.Time {
	if t := w.session.Status.StartTime; t != nil {
		return t.Time
	}
	return time.Time{}
}

// idleSince is since when the session has nothing to do; zero while it has, or nobody
// knows. An agent that can be spoken with must say so itself. Of one that cannot, what
// it said last holds: nothing reaches it that we have not brought.
func (w *world) idleSince() time.Time {
	a := w.session.Status.Activity
	if a == nil || a.State != v1alpha1.ActivityIdle || a.IdleSince == nil || len(undelivered(w.messages)) > 0 {
		return time.Time{}
	}
	if w.pod != nil && w.pod.DeletionTimestamp == nil {
		if o := w.observation.Observed; !w.podUp() || o == nil || o.Activity.State != wire.Idle {
			return time.Time{}
		}
	}
	since := a.IdleSince.Time
	// A session that was resumed has been given its time anew.
	if c := meta.FindStatusCondition(w.session.Status.Conditions, v1alpha1.ConditionSuspended); c != nil && c.Status != "True" {
		since = latest(since, c.LastTransitionTime.Time)
	}
	return latest(since, w.startTime())
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// idlePolicy is the session's, else its class's default. A default does not ask for what
// the session's storage does not allow.
func (w *world) idlePolicy() v1alpha1.IdlePolicy {
	if p := w.session.Spec.IdlePolicy; p != nil {
		return *p
	}
	if w.class == nil || w.class.Spec.Defaults.IdlePolicy == nil {
		return v1alpha1.IdlePolicy{}
	}
	p := *w.class.Spec.Defaults.IdlePolicy
	if !w.persistent() {
		p.SuspendAfterSeconds = nil
	}
	return p
}

// idledOut reports whether the session has been idle for so long that it is suspended.
func (w *world) idledOut() bool {
	return w.persistent() && w.past(w.idleSince(), w.idlePolicy().SuspendAfterSeconds)
}

// expiry says why the session is to be deleted now; "" when it is not.
func (w *world) expiry() string {
	s := w.session
	switch {
	case w.completed() != nil:
		if t := s.Status.CompletionTime; t != nil && w.past(t.Time, s.Spec.TTLSecondsAfterFinished) {
			return "The session finished longer ago than its ttlSecondsAfterFinished."
		}
	case !s.Spec.Suspend && w.past(w.idleSince(), w.idlePolicy().DeleteAfterSeconds):
		return "The session has been idle for longer than its idlePolicy.deleteAfterSeconds."
	}
	return ""
}

// expire deletes a session whose time is over: the one that was seen, as it was seen.
func (r *SessionReconciler) expire(ctx context.Context, w *world) outcome {
	why := w.expiry()
	if why == "" {
		return outcome{}
	}
	log.FromContext(ctx).Info("Deleting session", "why", why)
	err := r.Client.Delete(ctx, w.session, client.Preconditions{UID: &w.session.UID, ResourceVersion: &w.session.ResourceVersion})
	if err == nil {
		r.record(w.session, []note{{corev1.EventTypeNormal, v1alpha1.ReasonExpired, "Delete", why}})
	}
	return broke(err, "deleting session")
}

// nextTime is when something happens by time alone; 0 when nothing does.
func (w *world) nextTime() time.Duration {
	s := w.session
	var waits []time.Duration
	add := func(t time.Time, seconds *int64) {
		if wait, ok := w.untilAfter(t, seconds); ok && wait > 0 {
			waits = append(waits, wait)
		}
	}
	if w.completed() != nil {
		if s.Status.CompletionTime != nil {
			add(s.Status.CompletionTime.Time, s.Spec.TTLSecondsAfterFinished)
		}
	} else {
		add(w.startTime(), s.Spec.ActiveDeadlineSeconds)
		if w.persistent() {
			add(w.idleSince(), w.idlePolicy().SuspendAfterSeconds)
		}
		if !s.Spec.Suspend {
			add(w.idleSince(), w.idlePolicy().DeleteAfterSeconds)
		}
	}
	if len(waits) == 0 {
		return 0
	}
	return slices.Min(waits)
}

// finished says how a session ends that is over by its own spec. Its messages have
// been told their answers before: afterwards nobody asks the agent any more.
func finished(w *world) (verdict, bool) {
	s := w.session
	if w.past(w.startTime(), s.Spec.ActiveDeadlineSeconds) {
		return yes(v1alpha1.ReasonDeadlineExceeded, "The session ran for its activeDeadlineSeconds, %d s.", *s.Spec.ActiveDeadlineSeconds), true
	}
	o := w.observation.Observed
	if s.Spec.Completion != v1alpha1.CompletionWhenIdle || !w.podUp() || o == nil || w.observation.Unreachable ||
		o.Activity.State != wire.Idle || o.Activity.Turns == 0 {
		return verdict{}, false
	}
	for _, m := range w.messages {
		if !isTrue(m.Status.Conditions, v1alpha1.ConditionAnswered) && !sessionOver(&m) {
			return verdict{}, false
		}
	}
	if n := len(o.Messages); n > 0 {
		switch last := o.Messages[n-1].Reason; {
		case turnLimits[last]:
			return yes(v1alpha1.ReasonLimitReached, "The last turn ended at one of the session's limits: %s. Create a session with a higher one to go on.", last), true
		case last != turnCompleted:
			return yes(v1alpha1.ReasonFailed, "The last turn ended without an answer: %s.", cutLine(last, 64)), true
		}
	}
	return yes(v1alpha1.ReasonSucceeded, "Every message is answered."), true
}
