// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create

// persistent reports whether the state of the session outlives its pod. The pod knows;
// then status, which has it from the first pod; a session that has had none may still
// get what its class says.
func (w *world) persistent() bool {
	var have *v1alpha1.StorageStatus
	switch {
	case w.pod != nil:
		have = podspec.StorageOf(w.pod)
	case w.session.Status.Storage != nil:
		have = w.session.Status.Storage
	case !w.started() && w.class != nil:
		return podspec.Storage(w.session, w.class).Type == v1alpha1.StoragePersistentVolumeClaim
	}
	return have != nil && have.Type == v1alpha1.StoragePersistentVolumeClaim
}

// observeClaim reads the volume claim. That there is none is believed of the apiserver
// alone: from it follows that the session is lost.
func (r *SessionReconciler) observeClaim(ctx context.Context, w *world) error {
	if !w.persistent() {
		return nil
	}
	key := types.NamespacedName{Namespace: w.session.Namespace, Name: podspec.ClaimName(w.session)}
	var c corev1.PersistentVolumeClaim
	err := r.Client.Get(ctx, key, &c)
	if apierrors.IsNotFound(err) {
		c = corev1.PersistentVolumeClaim{}
		err = r.Live.Get(ctx, key, &c)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading volume claim %s: %w", key.Name, err)
	case claimIsOurs(&c, w.session):
		w.claim = &c
	default:
		w.foreignClaim = true
	}
	return nil
}

// claimIsOurs tells the session's claim from one that only has its name. Who can write
// the annotation of a claim that is to be retained could as well write into its volume;
// the agent refuses the log of another session.
func claimIsOurs(c *corev1.PersistentVolumeClaim, s *v1alpha1.AgentSession) bool {
	if metav1.GetControllerOf(c) == nil {
		return c.Annotations[podspec.AnnotationSessionUID] == string(s.UID)
	}
	return metav1.IsControlledBy(c, s)
}

// volumeWent reports whether the claim of a session that has not started is gone, going, or
// another's: its pod waits for it and would for ever.
func (w *world) volumeWent() bool {
	return !w.started() && w.persistent() && (w.claim == nil || w.claim.DeletionTimestamp != nil)
}

// ensureClaim creates the volume claim before the first pod. ready is true when a pod
// may be created on it.
func (r *SessionReconciler) ensureClaim(ctx context.Context, w *world) (ready bool, o outcome) {
	switch {
	case !w.persistent():
		return true, outcome{}
	case w.foreignClaim:
		w.podRefused = refuse(v1alpha1.ReasonNameTaken,
			"The volume claim %s does not belong to the session. It is neither used nor removed: remove it yourself.", podspec.ClaimName(w.session))
		return false, outcome{after: slowly}
	case w.claim != nil && w.claim.DeletionTimestamp != nil:
		return false, outcome{} // what becomes of it brings us back
	case w.claim != nil:
		return true, outcome{}
	}
	c, err := podspec.Typed[corev1.PersistentVolumeClaim](podspec.Claim(podspec.Input{Session: w.session, Class: w.class}))
	if err != nil {
		return false, outcome{err: err}
	}
	log.FromContext(ctx).Info("Creating volume claim", "claim", klog.KObj(c))
	if err := r.Client.Create(ctx, c); err != nil {
		return false, w.rejected(err, "volume claim", "")
	}
	w.claim = c
	return true, outcome{}
}

// sessionOfClaim is the session that a claim was made for. One that is to be retained
// has no owner, and a label is enough to look.
func sessionOfClaim(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[podspec.LabelSession]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
