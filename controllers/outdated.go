// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// inputsToday is the digest of what the session's pod would be built from now; ""
// when that is not known.
func (r *SessionReconciler) inputsToday(w *world) string {
	if w.class == nil || w.pod == nil {
		return ""
	}
	return podspec.Inputs(podspec.Input{Session: w.session, Class: w.class, AgentImage: r.AgentImage, CAHash: r.Authority.Hash()})
}

// outdated reports whether the pod was built from other inputs than today's. It
// compares what we wrote with what we would write, so that what admission made of the
// pod is no difference.
func (w *world) outdated() bool {
	return w.pod != nil && w.class != nil && w.inputs != "" && w.pod.Annotations[podspec.AnnotationInputs] != w.inputs
}

func outdatedOf(w *world, completed verdict) verdict {
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case !w.outdated():
		return no(v1alpha1.ReasonCurrent, "There is no pod that would be built otherwise today.")
	case !w.persistent():
		return yes(v1alpha1.ReasonInputsChanged, "Class or operator changed after the pod was built. The pod stays: the session's log would end with it.")
	case w.class.Spec.UpdateStrategy == v1alpha1.UpdateWhenIdle:
		return yes(v1alpha1.ReasonInputsChanged, "Class or operator changed after the pod was built. The pod is replaced when the session is idle.")
	}
	return yes(v1alpha1.ReasonInputsChanged, "Class or operator changed after the pod was built. Its next pod is built anew: suspend and resume the session to have it now.")
}

// replaceable reports whether an outdated pod is to be replaced now: nothing runs or
// waits, the state is kept, and the pod is not so young that something else must be
// wrong. A pod without our annotation is left alone: the next might lose it too; and so is one
// whose image could not be had again.
func (w *world) replaceable() bool {
	o := w.observation.Observed
	return w.completed() == nil && w.outdated() && w.persistent() && w.podUp() && w.refused == nil &&
		toolsImageOf(w.session, w.class) == nil &&
		w.class.Spec.UpdateStrategy == v1alpha1.UpdateWhenIdle &&
		w.pod.Annotations[podspec.AnnotationInputs] != "" &&
		o != nil && o.Activity.State == wire.Idle && o.Activity.Terminals == 0 && len(undelivered(w.messages)) == 0 &&
		w.pod.CreationTimestamp.Add(slowly).Before(w.now)
}

// replaceOutdated removes an outdated pod when that disturbs nobody; the next is built
// from today's inputs.
func (r *SessionReconciler) replaceOutdated(ctx context.Context, w *world) outcome {
	if !w.replaceable() {
		return outcome{}
	}
	log.FromContext(ctx).Info("Replacing a pod that was built from older inputs")
	return r.removePod(ctx, w)
}
