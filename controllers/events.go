// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// note is one event.
type note struct{ kind, reason, action, text string }

// quiet are reasons that come and go in the life of every session.
var quiet = map[string]bool{
	v1alpha1.ReasonNotAccepted:     true,
	v1alpha1.ReasonPodPending:      true,
	v1alpha1.ReasonPodTerminating:  true,
	v1alpha1.ReasonPending:         true,
	v1alpha1.ReasonDraining:        true,
	v1alpha1.ReasonAwaitingProbe:   true,
	v1alpha1.ReasonRunning:         true,
	v1alpha1.ReasonWaitingForInput: true,
	v1alpha1.ReasonSuspended:       true,
	v1alpha1.ReasonPaused:          true,
}

// notesOn are the events of going from one status to another: what begins to be in
// the way, and each policy that came into force.
func notesOn(before, after *v1alpha1.AgentSessionStatus) []note {
	var list []note
	if ready := transition(before, after, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse && !quiet[ready.Reason] {
		list = append(list, note{corev1.EventTypeWarning, ready.Reason, "Observe", ready.Message})
	}
	if applied, ok := appliedNote(before, after); ok {
		list = append(list, applied)
	}
	if c := transition(before, after, v1alpha1.ConditionWaitingForApproval); c != nil && c.Status == metav1.ConditionTrue {
		list = append(list, note{corev1.EventTypeNormal, v1alpha1.ConditionWaitingForApproval, "Observe", c.Message})
	}
	if before.PodName == "" && after.PodName != "" {
		list = append(list, note{corev1.EventTypeNormal, "PodCreated", "Create", "Created pod " + after.PodName})
	}
	return list
}

// appliedNote says what came into force, and that it is less than was asked for. It is one
// event: a label on a namespace may clamp hundreds of sessions at once.
func appliedNote(before, after *v1alpha1.AgentSessionStatus) (note, bool) {
	mode := transition(before, after, v1alpha1.ConditionModeApplied)
	clamped := mode != nil && mode.Reason == v1alpha1.ReasonClamped
	a := after.Applied
	if a == nil || !isTrue(after.Conditions, v1alpha1.ConditionModeApplied) {
		return note{}, false
	}
	if before.Applied != nil && before.Applied.Digest == a.Digest && isTrue(before.Conditions, v1alpha1.ConditionModeApplied) {
		if clamped { // what was asked for changed, and not what is in force
			return note{corev1.EventTypeWarning, mode.Reason, "Apply", mode.Message}, true
		}
		return note{}, false
	}
	text := fmt.Sprintf("%s is enforced (generation %d, log event %d)", a.Mode, a.Generation, a.SnapshotSeq)
	if a.SnapshotSeq == 0 {
		text = fmt.Sprintf("%s is enforced (generation %d, the model is not told)", a.Mode, a.Generation)
	}
	if a.KilledProcesses > 0 {
		text += fmt.Sprintf("; %d processes were ended", a.KilledProcesses)
	}
	if clamped {
		return note{corev1.EventTypeWarning, mode.Reason, "Apply", text + ". " + mode.Message}, true
	}
	return note{corev1.EventTypeNormal, v1alpha1.ConditionModeApplied, "Apply", text}, true
}

// transition returns a condition whose status or reason is another than before.
func transition(before, after *v1alpha1.AgentSessionStatus, t string) *metav1.Condition {
	b, a := meta.FindStatusCondition(before.Conditions, t), meta.FindStatusCondition(after.Conditions, t)
	if a == nil || b != nil && b.Status == a.Status && b.Reason == a.Reason {
		return nil
	}
	return a
}

func (r *SessionReconciler) record(s *v1alpha1.AgentSession, notes []note) {
	for _, n := range notes {
		r.Recorder.Eventf(s, nil, n.kind, n.reason, n.action, "%s", cutLine(n.text, 1000))
	}
}
