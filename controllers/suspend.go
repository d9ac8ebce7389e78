// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// maySuspend reports whether the session survives without its pod: its state is on a
// volume that stays, or there is none yet.
func (w *world) maySuspend() bool { return !w.started() || w.persistent() }

// suspending reports whether the session is to have no pod now.
func (w *world) suspending() bool {
	return w.session.Spec.Suspend && w.maySuspend() || w.idledOut()
}

func suspendedOf(w *world, completed verdict) verdict {
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case w.idlePolicy().SuspendAfterSeconds != nil && w.class != nil && !w.persistent():
		return no(v1alpha1.ReasonStorageNotPersistent,
			"The session cannot be suspended when idle: its log is in an EmptyDir, which ends with the pod. Remove idlePolicy.suspendAfterSeconds, or create the session anew with storage of type PersistentVolumeClaim.")
	case w.session.Spec.Suspend && !w.maySuspend():
		return no(v1alpha1.ReasonStorageNotPersistent,
			"The session goes on: its log is in an EmptyDir, which ends with the pod. Set suspend back to false, or delete the session.")
	case !w.suspending():
		return no(v1alpha1.ReasonNotRequested, "The session is wanted to run.")
	case w.foreign:
		return no(v1alpha1.ReasonNameTaken, "The pod %s does not belong to the session and has the name of its pod: delete it, and the session is suspended.", podspec.PodName(w.session))
	case w.pod != nil:
		return no(v1alpha1.ReasonPodTerminating, "The pod is going away; the session's state is kept.")
	}
	if !w.session.Spec.Suspend {
		return yes(v1alpha1.ReasonIdle, "The session was idle and has no pod; its state is kept. A SessionMessage lets it go on.")
	}
	return yes(v1alpha1.ReasonSuspended, "The session has no pod; its state is kept. Set suspend to false to go on.")
}

// lost says how a session lost its volume, and with it its log; "" when it did not.
func lost(w *world) string {
	if !w.started() {
		return ""
	}
	name := podspec.PodName(w.session)
	switch {
	case w.persistent() && w.foreignClaim:
		return "The volume claim " + podspec.ClaimName(w.session) + " is gone, and another one has its name. Create a new session."
	case w.persistent() && w.claim == nil:
		return "The volume claim " + podspec.ClaimName(w.session) + " was deleted, and the session's log with it. Create a new session."
	case w.persistent():
		return ""
	case w.foreign:
		return "The session's pod is gone, and another object has its name."
	case w.pod == nil:
		return "The pod " + name + " was deleted, and the session's log with it. Create a new session."
	case ended(w.pod):
		return "The pod " + name + " ended (" + reasonOf(w.pod) + "), and the session's log with it. Create a new session."
	}
	return ""
}
