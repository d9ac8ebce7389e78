// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// namespaceObject is a namespace as far as it is read: its metadata.
func namespaceObject(name string) *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return n
}

// observeNamespace reads the namespace of the session.
func (r *SessionReconciler) observeNamespace(ctx context.Context, w *world) error {
	w.namespace = namespaceObject(w.session.Namespace)
	key := types.NamespacedName{Name: w.session.Namespace}
	err := r.Client.Get(ctx, key, w.namespace)
	if apierrors.IsNotFound(err) { // a session may come sooner than its namespace
		err = r.Live.Get(ctx, key, w.namespace)
	}
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", w.session.Namespace, err)
	}
	return nil
}

// namespaceCeiling is what a namespace allows: what its label says, and nothing wider
// than read-only where the label says what nobody understands.
func namespaceCeiling(n *metav1.PartialObjectMetadata) (c policy.Ceiling, unknown bool) {
	value, labelled := n.Labels[v1alpha1.MaxModeLabel]
	if !labelled {
		return policy.Unbounded, false
	}
	c = policy.Unbounded
	mode, err := policy.ParseMode(value)
	c.Mode = mode // read-only with an error
	return c, err != nil
}

// sessionsOfNamespace are the sessions that a namespace's ceiling may move. Who set a
// label that nobody understands is told at the namespace.
func (r *SessionReconciler) sessionsOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	n := o.(*metav1.PartialObjectMetadata)
	if _, unknown := namespaceCeiling(n); unknown {
		r.Recorder.Eventf(n, nil, corev1.EventTypeWarning, v1alpha1.ReasonUnknownMaxMode, "Resolve",
			"The label %s=%s names no sandbox mode and counts as read-only: use one of %s.",
			v1alpha1.MaxModeLabel, n.Labels[v1alpha1.MaxModeLabel], modeNames())
	}
	var list v1alpha1.AgentSessionList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetName())); err != nil {
		return nil // the cache only fails while it stops
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: nameOf(&list.Items[i])})
	}
	return requests
}

func modeNames() string {
	var names []string
	for _, m := range policy.Modes() {
		names = append(names, m.String())
	}
	return strings.Join(names, ", ")
}

// labelsChanged lets through what may move the sessions of a namespace: its labels hold its ceiling, and
// classes select by them. At a start every session is looked at anyway, and a label that is wrong is told again.
func labelsChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			_, has := e.Object.GetLabels()[v1alpha1.MaxModeLabel]
			return has
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
