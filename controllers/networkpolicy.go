// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete

// fieldOwner is who the operator is where it applies.
const fieldOwner = client.FieldOwner("agentsession-operator")

// bounded reports whether the class wants a NetworkPolicy for the session.
func (w *world) bounded() bool { return w.class != nil && w.class.Spec.Egress != nil }

// observeNetwork reads the NetworkPolicy. One that is wanted and not in the cache is asked for
// at the apiserver; where none is wanted, that costs nothing.
func (r *SessionReconciler) observeNetwork(ctx context.Context, w *world) error {
	err := r.readNetwork(ctx, r.Client, w)
	if w.network == nil && !w.foreignNetwork && w.bounded() && err == nil {
		err = r.readNetwork(ctx, r.Live, w)
	}
	return err
}

func (r *SessionReconciler) readNetwork(ctx context.Context, from client.Reader, w *world) error {
	w.network, w.foreignNetwork = nil, false
	key := types.NamespacedName{Namespace: w.session.Namespace, Name: podspec.PodName(w.session)}
	var n networkingv1.NetworkPolicy
	err := from.Get(ctx, key, &n)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading network policy %s: %w", key.Name, err)
	case metav1.IsControlledBy(&n, w.session):
		w.network = &n
	default:
		w.foreignNetwork = true
	}
	return nil
}

// opened reports whether the pod may reach what openCIDRs name: because the policy says so, or
// because a repository is yet to be fetched, before which no tool runs. What the agent says does
// not count: it could say it to have it.
func (w *world) opened() bool {
	if w.policy != nil && w.policy.document.Policy.Network == policy.NetworkOpen {
		return true
	}
	return podspec.Clones(w.session) && (w.pod == nil || !filled(w.pod))
}

// widenNetwork opens the NetworkPolicy of a pod before its agent is told that the network is open.
// Where that fails the agent is told all the same, because it may be told of a narrowing in one.
func (r *SessionReconciler) widenNetwork(ctx context.Context, w *world) outcome {
	if w.pod == nil || !w.opened() {
		return outcome{}
	}
	_, o := r.ensureNetwork(ctx, w)
	return o
}

// boundFirst makes the NetworkPolicy before the pod, so that it never runs without it. That there is one
// already is believed of the apiserver alone.
func (r *SessionReconciler) boundFirst(ctx context.Context, w *world) (ready bool, o outcome) {
	if w.bounded() && w.network != nil {
		if err := r.readNetwork(ctx, r.Live, w); err != nil {
			return false, outcome{err: err}
		}
	}
	return r.ensureNetwork(ctx, w)
}

// settleNetwork makes the NetworkPolicy of a pod as it is to be. It comes after the agent was told: a
// narrowing is the kernel's first, and this does not wait for the agent to confirm it.
func (r *SessionReconciler) settleNetwork(ctx context.Context, w *world) outcome {
	switch {
	case w.class == nil: // nobody knows what is wanted
		return outcome{}
	case !w.bounded():
		return r.removeNetwork(ctx, w)
	case w.pod == nil || ended(w.pod) || w.opened(): // what is open was made so before the pod, or before its agent was told
		return outcome{}
	}
	_, o := r.ensureNetwork(ctx, w)
	return o
}

// ensureNetwork creates the NetworkPolicy, or makes it again as it is to be, whoever changed it. ready
// is true when the pod is bounded as the class wants.
func (r *SessionReconciler) ensureNetwork(ctx context.Context, w *world) (ready bool, o outcome) {
	switch {
	case !w.bounded():
		return true, outcome{}
	case w.foreignNetwork:
		w.podRefused = refuse(v1alpha1.ReasonNameTaken,
			"The NetworkPolicy %s does not belong to the session. It is neither used nor removed: remove it yourself.", podspec.PodName(w.session))
		return false, outcome{after: slowly}
	case w.network != nil && w.network.DeletionTimestamp != nil:
		return false, outcome{} // its end brings us back
	}
	configuration := podspec.NetworkPolicy(podspec.Input{Session: w.session, Class: w.class}, r.Operator, w.opened())
	want, err := podspec.Typed[networkingv1.NetworkPolicy](configuration)
	if err != nil {
		return false, outcome{err: err}
	}
	if w.network == nil {
		return r.createNetwork(ctx, w, want)
	}
	if isAsWanted(w.network, want) {
		return true, outcome{}
	}
	if err := r.readNetwork(ctx, r.Live, w); err != nil { // the cache may be behind our own writing
		return false, outcome{err: err}
	}
	if w.network == nil {
		return false, outcome{after: 200 * time.Millisecond, stale: true}
	}
	if isAsWanted(w.network, want) {
		return true, outcome{}
	}
	log.FromContext(ctx).Info("Changing network policy", "networkPolicy", klog.KObj(want), "open", w.opened())
	// The UID keeps it from being made anew, or from being another's, if it went meanwhile.
	if err := r.Client.Apply(ctx, configuration.WithUID(w.network.UID), fieldOwner, client.ForceOwnership); err != nil {
		return false, w.rejected(err, "NetworkPolicy", "")
	}
	w.network = w.network.DeepCopy()
	w.network.Spec, w.network.Labels = want.Spec, want.Labels
	return true, outcome{}
}

// createNetwork does not apply: that would take over a foreign object of the same name.
func (r *SessionReconciler) createNetwork(ctx context.Context, w *world, want *networkingv1.NetworkPolicy) (ready bool, o outcome) {
	log.FromContext(ctx).Info("Creating network policy", "networkPolicy", klog.KObj(want), "open", w.opened())
	err := r.Client.Create(ctx, want, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return false, outcome{after: 200 * time.Millisecond, stale: true}
	}
	if err != nil {
		return false, w.rejected(err, "NetworkPolicy", "")
	}
	w.network = want
	return true, outcome{}
}

// removeNetwork deletes what an earlier class wanted.
func (r *SessionReconciler) removeNetwork(ctx context.Context, w *world) outcome {
	if w.network == nil || w.network.DeletionTimestamp != nil {
		return outcome{}
	}
	log.FromContext(ctx).Info("Deleting network policy", "networkPolicy", klog.KObj(w.network))
	err := r.Client.Delete(ctx, w.network, client.Preconditions{UID: &w.network.UID})
	if client.IgnoreNotFound(err) != nil {
		return broke(err, "deleting network policy %s", w.network.Name)
	}
	w.network = nil
	return outcome{}
}

func isAsWanted(have, want *networkingv1.NetworkPolicy) bool {
	for name, value := range want.Labels {
		if have.Labels[name] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(have.Spec, want.Spec)
}
