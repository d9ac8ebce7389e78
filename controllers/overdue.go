// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// overdueGrace is the grace, in seconds, of a pod whose supervisor does not confirm. It is
	// not nothing: a forced deletion frees the name while the writer may still run.
	overdueGrace = 1
	// restartPatience is how long a container must have run before its silence counts: one that was
	// restarted meanwhile is empty, and its supervisor on its way.
	restartPatience = 30 * time.Second
)

// endOverdue deletes the pod if a supervisor in it did not confirm a narrowing in time: what
// ran under the wider policy may still run, and only the kubelet can end it then.
func (r *SessionReconciler) endOverdue(ctx context.Context, w *world) outcome {
	container, wait := overdue(w)
	if container == "" {
		return outcome{after: wait}
	}
	log.FromContext(ctx).Info("A supervisor does not confirm a narrowing", "container", container)
	return r.removePod(ctx, w, client.GracePeriodSeconds(overdueGrace))
}

// overdue names a container that runs and whose supervisor has had its time; or says when to
// look again. In a container that does not run nothing has to be ended.
func overdue(w *world) (container string, wait time.Duration) {
	o := w.observation
	if w.completed() != nil || !w.podUp() || o.Observed == nil || o.Unreachable {
		return "", 0
	}
	for _, name := range toolsContainers(w.pod) {
		if !slices.Contains(o.Observed.Overdue, name) {
			continue
		}
		i := slices.IndexFunc(w.pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
		if i < 0 || w.pod.Status.ContainerStatuses[i].State.Running == nil {
			continue
		}
		left := w.pod.Status.ContainerStatuses[i].State.Running.StartedAt.Add(restartPatience).Sub(w.now)
		if left <= 0 {
			return name, 0
		}
		wait = max(wait, left)
	}
	return "", wait
}
