// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Setting an owner needs, where that is enforced, the right to delete what is owned.
// +kubebuilder:rbac:groups=agentsession.dev,resources=sessionmessages,verbs=patch;delete
// +kubebuilder:rbac:groups=agentsession.dev,resources=sessionmessages/status,verbs=patch

// tellSenders writes into each message what became of it, in the order of delivery.
func (r *SessionReconciler) tellSenders(ctx context.Context, w *world) outcome {
	var out outcome
	for i := range w.messages {
		m := &w.messages[i]
		status := messageStatus(w, m)
		if equality.Semantic.DeepEqual(status, m.Status) {
			continue
		}
		if err := r.tell(ctx, w.session, m, status); err != nil {
			out = out.and(broke(err, "telling the sender of message %s", m.Name))
		}
	}
	return out
}

func (r *SessionReconciler) tell(ctx context.Context, s *v1alpha1.AgentSession, m *v1alpha1.SessionMessage, status v1alpha1.SessionMessageStatus) error {
	if s != nil && isTrue(status.Conditions, v1alpha1.ConditionDelivered) && !ownedBy(m, s) {
		before := m.DeepCopy()
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "AgentSession", Name: s.Name, UID: s.UID,
		})
		if err := r.Client.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	before := m.DeepCopy()
	m.Status = status
	err := r.Client.Status().Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		m.Status = before.Status // what is not durable was not told
	}
	return err
}

func ownedBy(m *v1alpha1.SessionMessage, s *v1alpha1.AgentSession) bool {
	return slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.UID })
}

// messageStatus is what became of a message, as far as is known.
func messageStatus(w *world, m *v1alpha1.SessionMessage) v1alpha1.SessionMessageStatus {
	status := *m.Status.DeepCopy()
	set := func(condition string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: condition, Status: value, Reason: reason, Message: message,
			ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(w.now),
		})
	}
	if w.session != nil && !sessionOver(m) {
		if i := w.findMessage(string(m.UID)); i >= 0 {
			o := w.observation.Observed.Messages[i]
			status.Sequence = int64(o.Sequence)
			set(v1alpha1.ConditionDelivered, metav1.ConditionTrue, v1alpha1.ReasonDelivered, "The message is in the session's log.")
			if o.State == wire.Answered {
				status.Turn, status.Reply = int64(o.Turn), o.Reply
				reason, message := answerOf(o)
				set(v1alpha1.ConditionAnswered, metav1.ConditionTrue, reason, message)
			} else if !isTrue(status.Conditions, v1alpha1.ConditionAnswered) {
				set(v1alpha1.ConditionAnswered, metav1.ConditionFalse, v1alpha1.ReasonPending, "The agent has not finished with it yet.")
			}
		}
	}
	delivered, answered := isTrue(status.Conditions, v1alpha1.ConditionDelivered), isTrue(status.Conditions, v1alpha1.ConditionAnswered)
	switch {
	case w.session == nil && !delivered:
		set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonSessionNotFound,
			"There is no session "+m.Spec.SessionName+" in this namespace. It is delivered if one is created.")
	case w.session == nil, w.completed() == nil:
	case !delivered:
		set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonSessionCompleted, "The session is finished. Send it to another one.")
	case !answered:
		set(v1alpha1.ConditionAnswered, metav1.ConditionFalse, v1alpha1.ReasonSessionCompleted, "The session finished before it was answered.")
	}
	return status
}

func (w *world) findMessage(uid string) int {
	if w.observation.Observed == nil {
		return -1
	}
	return slices.IndexFunc(w.observation.Observed.Messages, func(o wire.MessageStatus) bool {
		return o.UID == uid && (o.State == wire.Delivered || o.State == wire.Answered)
	})
}

// turnCompleted is the reason of a turn in which the model answered.
const turnCompleted = "Completed"

// turnLimits are the reasons of turns that ended because the session may do no more.
var turnLimits = map[string]bool{"StepLimit": true, "TurnLimit": true, "TokenLimit": true}

func answerOf(o wire.MessageStatus) (reason, message string) {
	if o.Reason == turnCompleted {
		return v1alpha1.ReasonAnswered, "The model answered."
	}
	switch {
	case o.Reason == "Cancelled":
		return v1alpha1.ReasonCancelled, "A newer message interrupted its turn."
	case turnLimits[o.Reason]:
		return v1alpha1.ReasonLimitReached, "The turn ended at a limit: " + o.Reason + ". The reply says which one."
	}
	return v1alpha1.ReasonTurnFailed, "The turn ended without an answer: " + cutLine(o.Reason, 64) + ". See the conditions of the session and the pod's log."
}

// sessionOver reports whether a message was given up because its session is finished.
func sessionOver(m *v1alpha1.SessionMessage) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Reason == v1alpha1.ReasonSessionCompleted
	})
}

func isTrue(conditions []metav1.Condition, t string) bool {
	return meta.IsStatusConditionTrue(conditions, t)
}
