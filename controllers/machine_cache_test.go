// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// watched are the kinds that the controller has in its cache. Each is behind by itself.
var watched = []string{"AgentSession", "AgentSessionClass", "SessionMessage", "Pod", "PersistentVolumeClaim", "NetworkPolicy", "Namespace"}

// lagging is a cache: of each kind it holds what the store held some changes ago, as
// CacheOptions have it.
type lagging struct {
	*store
	objects map[objectKey]client.Object
	at      map[string]int // changes that were seen, by kind
	index   map[string]client.IndexerFunc
}

// newLagging is a cache that has just been filled.
func newLagging(s *store) *lagging {
	c := &lagging{store: s, objects: map[objectKey]client.Object{}, at: map[string]int{}, index: map[string]client.IndexerFunc{}}
	for k, o := range s.objects {
		c.keep(k, o)
	}
	for _, kind := range watched {
		c.at[kind] = len(s.changes)
	}
	if err := index(context.Background(), c); err != nil { //nolint:forbidigo // what answers from memory waits for nothing
		panic(err)
	}
	return c
}

func (c *lagging) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	c.index[c.key(o).kind+"/"+field] = f
	return nil
}

func (c *lagging) keep(k objectKey, o client.Object) {
	delete(c.objects, k) // also what is not of the cache any more
	if o == nil || !slices.Contains(watched, k.kind) {
		return
	}
	if cached := asCached(o); cached != nil {
		c.objects[k] = cached
	}
}

// asCached is an object as the cache holds it; nil when it does not.
func asCached(o client.Object) client.Object {
	for kind, by := range CacheOptions().ByObject {
		if fmt.Sprintf("%T", kind) == fmt.Sprintf("%T", o) {
			return through(by, o)
		}
	}
	return o
}

func through(by cache.ByObject, o client.Object) client.Object {
	if by.Label != nil && !by.Label.Matches(labels.Set(o.GetLabels())) {
		return nil
	}
	if by.Transform == nil {
		return o
	}
	kept, err := by.Transform(o.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return kept.(client.Object)
}

// behind reports whether there is a change of a kind that the cache has not seen.
func (c *lagging) behind(kind string) bool {
	for _, x := range c.changes[c.at[kind]:] {
		if x.key.kind == kind {
			return true
		}
	}
	return false
}

func (c *lagging) current() bool { return !slices.ContainsFunc(watched, c.behind) }

// next takes one change of a kind into the cache and returns who is to be looked at.
func (c *lagging) next(kind string, r *SessionReconciler) []reconcile.Request {
	for c.at[kind] < len(c.changes) {
		x := c.changes[c.at[kind]]
		c.at[kind]++
		if x.key.kind != kind {
			continue
		}
		before := c.objects[x.key]
		c.keep(x.key, x.now)
		return c.requests(r, before, c.objects[x.key])
	}
	return nil
}

// requests are those of SetupWithManager's watches.
func (c *lagging) requests(r *SessionReconciler, before, now client.Object) []reconcile.Request {
	o := now
	if o == nil {
		o = before
	}
	ctx := context.Background() //nolint:forbidigo // what answers from memory waits for nothing
	switch o := o.(type) {
	case nil:
		return nil // not of the cache
	case *v1alpha1.AgentSession:
		if passes(before, now, r.seen(), predicate.GenerationChangedPredicate{}) {
			return []reconcile.Request{{NamespacedName: nameOf(o)}}
		}
	case *corev1.Pod, *networkingv1.NetworkPolicy:
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "AgentSession" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
		}
	case *v1alpha1.SessionMessage:
		if passes(before, now, predicate.GenerationChangedPredicate{}) {
			return sessionOfMessage(ctx, o)
		}
	case *v1alpha1.AgentSessionClass:
		return r.sessionsOfClass(ctx, o)
	case *metav1.PartialObjectMetadata:
		if passes(before, now, labelsChanged()) {
			return r.sessionsOfNamespace(ctx, o)
		}
	case *corev1.PersistentVolumeClaim:
		return sessionOfClaim(ctx, o)
	}
	return nil
}

func passes(before, now client.Object, all ...predicate.Predicate) bool {
	for _, p := range all {
		var ok bool
		switch {
		case before == nil:
			ok = p.Create(event.CreateEvent{Object: now})
		case now == nil:
			ok = p.Delete(event.DeleteEvent{Object: before})
		default:
			ok = p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now})
		}
		if !ok {
			return false
		}
	}
	return true
}
