// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// Switch runs patch, which must change the session's spec, and returns how long it
// took from the new generation to ModeApplied=True for it, both as one watch saw them.
func Switch(ctx context.Context, c client.WithWatch, key client.ObjectKey, patch func() error) (time.Duration, error) {
	var before v1alpha1.AgentSession
	if err := c.Get(ctx, key, &before); err != nil {
		return 0, err
	}
	w, err := c.Watch(ctx, &v1alpha1.AgentSessionList{}, client.InNamespace(key.Namespace),
		client.MatchingFields{"metadata.name": key.Name})
	if err != nil {
		return 0, fmt.Errorf("watching %s: %w", key, err)
	}
	defer w.Stop()
	patched := make(chan error, 1)
	go func() { patched <- patch() }()
	took, err := untilApplied(ctx, w, before.Generation)
	if patchErr := <-patched; patchErr != nil {
		return 0, patchErr
	}
	return took, err
}

func untilApplied(ctx context.Context, w watch.Interface, old int64) (time.Duration, error) {
	var start time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for ModeApplied: %w", context.Cause(ctx))
		case e, open := <-w.ResultChan():
			s, ok := e.Object.(*v1alpha1.AgentSession)
			if !open || !ok {
				return 0, fmt.Errorf("the watch ended before ModeApplied: %v", e.Object)
			}
			if s.Generation <= old {
				continue
			}
			if start.IsZero() {
				start = time.Now()
			}
			if Is(s, v1alpha1.ConditionModeApplied, metav1.ConditionTrue) {
				return time.Since(start), nil
			}
		}
	}
}

// Is reports whether a condition has that status for the session's newest generation.
func Is(s *v1alpha1.AgentSession, condition string, status metav1.ConditionStatus) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, condition)
	return c != nil && c.Status == status && c.ObservedGeneration == s.Generation
}
