// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/controllers/podspec"
)

// mountPatience is how long a node may take for the volumes and the network of a pod until
// it is looked into.
const mountPatience = 15 * time.Second

// mountingSince is since when the pod's node has been at its volumes and its network; zero
// when no node is.
func mountingSince(p *corev1.Pod) time.Time {
	if p == nil || p.DeletionTimestamp != nil || ended(p) || p.Spec.NodeName == "" {
		return time.Time{}
	}
	if c := podCondition(p, corev1.PodReadyToStartContainers); c != nil {
		if c.Status == corev1.ConditionTrue {
			return time.Time{}
		}
		return c.LastTransitionTime.Time
	}
	begun := func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
	}
	c := podCondition(p, corev1.PodScheduled)
	if c == nil || slices.ContainsFunc(p.Status.InitContainerStatuses, begun) {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// stuckInMounts reports whether the node has been at it for longer than it should be.
func (w *world) stuckInMounts() bool {
	since := mountingSince(w.pod)
	return !since.IsZero() && !w.now.Before(since.Add(mountPatience))
}

// mendLinkSecret makes the link Secret anew of a pod that does not start, in case somebody
// deleted it: the node waits for it for ever. Whether it is there only trying tells, because the
// operator reads no Secrets. The other Secrets and ConfigMaps of a pod are optional, and its
// volume claim is observed.
func (r *SessionReconciler) mendLinkSecret(ctx context.Context, w *world) outcome {
	since := mountingSince(w.pod)
	if since.IsZero() || w.completed() != nil {
		return outcome{}
	}
	if wait := latest(since.Add(mountPatience), r.memory.mended(w.session, w.pod).Add(slowly)).Sub(w.now); wait > 0 {
		return outcome{after: wait}
	}
	if w.stranger {
		return outcome{} // planPod removes it
	}
	in := podspec.Input{Session: w.session, Class: w.class, CAHash: authorityOf(w.pod), Incarnation: incarnationOf(w.pod)}
	err := r.createLinkSecret(ctx, in)
	switch {
	case apierrors.IsAlreadyExists(err):
	case err != nil:
		return broke(err, "making the link Secret of pod %s anew", w.pod.Name)
	default:
		log.FromContext(ctx).Info("Made the link Secret of a pod anew", "pod", klog.KObj(w.pod))
	}
	r.memory.setMended(w.session, w.pod, w.now)
	return outcome{after: slowly}
}
