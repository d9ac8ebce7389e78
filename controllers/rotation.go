// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// AuthoritiesInUse counts the runner pods by the root that their agents believe.
func (r *SessionReconciler) AuthoritiesInUse(ctx context.Context) (map[string]int, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	used := map[string]int{}
	for i := range pods.Items {
		if hash := authorityOf(&pods.Items[i]); hash != "" {
			used[hash]++
		}
	}
	return used, nil
}

// LookAgain has every session looked at, because something changed that concerns them all.
func (r *SessionReconciler) LookAgain(ctx context.Context) {
	var all v1alpha1.AgentSessionList
	if err := r.Client.List(ctx, &all); err != nil {
		return // the cache only fails while it stops
	}
	for i := range all.Items {
		r.Wake(nameOf(&all.Items[i]))
	}
}
