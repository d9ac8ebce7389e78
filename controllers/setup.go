// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

const (
	// fieldClass indexes sessions by the class that they use.
	fieldClass = "class"
	// anyDefault is the index of sessions that have yet to be given the default class.
	anyDefault = "*"
)

// CacheOptions keep in memory what is needed: of pods, volume claims and network policies the runners', and of no object
// what only those look at who apply it. Secrets are never read through the cache.
func CacheOptions() cache.Options {
	ours := labels.SelectorFromSet(labels.Set{
		"app.kubernetes.io/managed-by": "agentsession-operator",
		"app.kubernetes.io/component":  "runner",
	})
	return cache.Options{
		DefaultTransform: slim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Label: ours, Transform: slimPod},
			&corev1.PersistentVolumeClaim{}: {Label: ours},
			&networkingv1.NetworkPolicy{}:   {Label: ours},
		},
	}
}

// slim takes from an object its managed fields and kubectl's copy of it. Nothing is ever written
// back as a whole, so that neither is lost.
func slim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
		delete(m.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	return o, nil
}

// slimPod takes from a pod what nobody here looks at, which is most of it: what was asked
// for stands in session and class.
func slimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, InitContainers: slimContainers(p.Spec.InitContainers), Containers: slimContainers(p.Spec.Containers),
		Volumes: slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return !podspec.HoldsState(v) }),
	}
	slimStatuses(p.Status.InitContainerStatuses)
	slimStatuses(p.Status.ContainerStatuses)
	return slim(p)
}

func slimStatuses(all []corev1.ContainerStatus) {
	for i := range all {
		c := &all[i]
		c.ImageID, c.ContainerID, c.VolumeMounts, c.User = "", "", nil, nil
		c.Resources, c.AllocatedResources, c.AllocatedResourcesStatus = nil, nil, nil
	}
}

// slimContainers leaves the arguments of the agent alone: from them is read which pod it is of.
func slimContainers(all []corev1.Container) []corev1.Container {
	var slim []corev1.Container
	for _, c := range all {
		if c.Name != podspec.AgentContainer {
			c.Args = nil
		}
		slim = append(slim, corev1.Container{Name: c.Name, Image: c.Image, Args: c.Args})
	}
	return slim
}

// SetupWithManager registers the controller, its watches and its indexes.
func (r *SessionReconciler) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	if err := index(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	return builder.ControllerManagedBy(m).
		Named("agentsession").
		// A status that changes is our own writing.
		For(&v1alpha1.AgentSession{}, builder.WithPredicates(r.seen(), predicate.GenerationChangedPredicate{}, caused(causeSession))).
		Owns(&corev1.Pod{}, builder.WithPredicates(caused(causePod))).
		Owns(&networkingv1.NetworkPolicy{}, builder.WithPredicates(caused(causeNetwork))).
		Watches(&v1alpha1.SessionMessage{}, handler.EnqueueRequestsFromMapFunc(sessionOfMessage),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}, caused(causeMessage))).
		Watches(&v1alpha1.AgentSessionClass{}, handler.EnqueueRequestsFromMapFunc(r.sessionsOfClass), builder.WithPredicates(caused(causeClass))).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.sessionsOfNamespace), builder.WithPredicates(labelsChanged(), caused(causeNamespace))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(sessionOfClaim), builder.WithPredicates(caused(causeVolume))).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue.Store(&q)
			return nil
		})).
		// A reconcile may wait 100 ms for an agent; others must not wait behind it.
		WithOptions(controller.Options{MaxConcurrentReconciles: 16}).
		Complete(r)
}

// seen is a predicate that lets all pass and frees what is kept until the cache has it.
func (r *SessionReconciler) seen() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if s, ok := e.ObjectNew.(*v1alpha1.AgentSession); ok {
			r.memory.seen(s)
			r.memory.aim(s, r.Now())
		}
		return true
	}}
}

func index(ctx context.Context, i client.FieldIndexer) error {
	err := i.IndexField(ctx, &v1alpha1.SessionMessage{}, fieldSession, func(o client.Object) []string {
		return []string{o.(*v1alpha1.SessionMessage).Spec.SessionName}
	})
	if err != nil {
		return fmt.Errorf("indexing messages: %w", err)
	}
	err = i.IndexField(ctx, &v1alpha1.AgentSession{}, fieldClass, func(o client.Object) []string {
		s := o.(*v1alpha1.AgentSession)
		return []string{cmp.Or(s.Status.ClassName, s.Spec.ClassName, anyDefault)}
	})
	if err != nil {
		return fmt.Errorf("indexing sessions: %w", err)
	}
	return nil
}

func sessionOfMessage(_ context.Context, o client.Object) []reconcile.Request {
	m := o.(*v1alpha1.SessionMessage)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.SessionName}}}
}

// sessionsOfClass are the sessions that use a class, or may now get it by default.
func (r *SessionReconciler) sessionsOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, class := range []string{o.GetName(), anyDefault} {
		var list v1alpha1.AgentSessionList
		if err := r.Client.List(ctx, &list, client.MatchingFields{fieldClass: class}); err != nil {
			continue // the cache only fails while it stops
		}
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: nameOf(&list.Items[i])})
		}
	}
	return requests
}
