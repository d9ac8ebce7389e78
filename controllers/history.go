// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// superfluous are the answered messages beyond those that the class keeps, oldest
// first. The agent's log has them all, so that none that is removed runs again.
func superfluous(w *world) []v1alpha1.SessionMessage {
	if w.session == nil || w.class == nil {
		return nil
	}
	keep := v1alpha1.DefaultHistoryMessages
	if n := w.class.Spec.History.Messages; n != nil {
		keep = int(*n)
	}
	var answered []v1alpha1.SessionMessage
	for _, m := range w.messages {
		if isTrue(m.Status.Conditions, v1alpha1.ConditionAnswered) && ownedBy(&m, w.session) && m.DeletionTimestamp == nil {
			answered = append(answered, m)
		}
	}
	return answered[:max(0, len(answered)-keep)]
}

// pruneMessages removes what is superfluous.
func (r *SessionReconciler) pruneMessages(ctx context.Context, w *world) outcome {
	var out outcome
	for _, m := range superfluous(w) {
		log.FromContext(ctx).Info("Removing an answered message", "message", m.Name)
		if err := r.Client.Delete(ctx, &m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			out = out.and(broke(err, "removing message %s", m.Name))
		}
	}
	return out
}
