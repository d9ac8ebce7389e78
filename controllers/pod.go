// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=create;delete
// +kubebuilder:rbac:groups=agentsession.dev,resources=agentsessions/finalizers,verbs=update

// podPlan is what to do about the pod.
type podPlan uint8

const (
	leavePod  podPlan = iota
	createPod         // there is none, and nothing is lost by a new one
	removePod         // it is of no use any more
)

// planPod decides. A second pod is never created beside a first one, and never after
// one that was told something and had the log: a turn might run twice.
func planPod(w *world) (podPlan, time.Duration) {
	p := w.pod
	switch {
	case w.foreign:
		// Nobody tells when it goes: the cache has the operator's pods alone. So it is looked after
		// quickly at first, and the more slowly the longer it stays.
		return leavePod, min(max(w.foreignFor, soon), slowly)
	case w.completed() != nil:
		if p != nil && p.DeletionTimestamp == nil && !ended(p) && !w.leaving() {
			return removePod, 0
		}
		return leavePod, 0
	case lost(w) != "", w.started() && !w.persistent():
		return leavePod, 0
	case w.suspending():
		if p != nil && p.DeletionTimestamp == nil && !w.leaving() {
			return removePod, 0
		}
		return leavePod, 0
	case p == nil:
		if w.policy == nil || w.refused != nil {
			return leavePod, 0
		}
		return createPod, 0
	case p.DeletionTimestamp == nil && ended(p):
		// The kubelet refused or evicted it. Not at once: the next may fare the same.
		if wait := p.CreationTimestamp.Add(slowly).Sub(w.now); wait > 0 {
			return leavePod, wait
		}
		return removePod, 0
	case p.DeletionTimestamp == nil && (w.volumeWent() || w.stranger && w.stuckInMounts()):
		return removePod, 0
	}
	return leavePod, 0
}

func (r *SessionReconciler) ensurePod(ctx context.Context, w *world) outcome {
	gone := r.followPod(ctx, w)
	plan, after := planPod(w)
	if plan == createPod || plan == removePod && (w.volumeWent() || w.stranger) {
		if current, out := r.isCurrent(ctx, w); !current {
			return out
		}
	}
	switch plan {
	case createPod:
		return gone.and(r.createPod(ctx, w))
	case removePod:
		return gone.and(r.removePod(ctx, w))
	default:
		return gone.and(outcome{after: after})
	}
}

// isCurrent reports whether the session is the one in the apiserver. What follows from a session that
// has not started must not be done to one that has, because a cache is behind.
func (r *SessionReconciler) isCurrent(ctx context.Context, w *world) (bool, outcome) {
	var s v1alpha1.AgentSession
	if err := r.Live.Get(ctx, nameOf(w.session), &s); err != nil {
		return false, broke(err, "reading session")
	}
	if s.ResourceVersion != w.session.ResourceVersion {
		return false, outcome{after: 200 * time.Millisecond, stale: true}
	}
	return true, outcome{}
}

// removePod deletes the pod that was seen, not one that has taken its name since, and
// the link Secret of that incarnation.
func (r *SessionReconciler) removePod(ctx context.Context, w *world, how ...client.DeleteOption) outcome {
	log.FromContext(ctx).Info("Deleting runner pod", "pod", klog.KObj(w.pod))
	err := r.Client.Delete(ctx, w.pod, append(how, client.Preconditions{UID: &w.pod.UID})...)
	if client.IgnoreNotFound(err) != nil {
		return broke(err, "deleting pod %s", w.pod.Name)
	}
	w.pod = w.pod.DeepCopy()
	w.pod.DeletionTimestamp = new(metav1.NewTime(w.now))
	return r.dropLinkSecret(ctx, w)
}

// createPod creates the link Secret, then the pod that mounts it. The name of the pod
// follows from the session, so the apiserver lets one of two controllers through.
func (r *SessionReconciler) createPod(ctx context.Context, w *world) outcome {
	if ready, out := r.ensureClaim(ctx, w); !ready {
		return out
	}
	if ready, out := r.boundFirst(ctx, w); !ready {
		return out
	}
	in := podspec.Input{Session: w.session, Class: w.class, AgentImage: r.AgentImage, CAHash: r.Authority.Hash()}
	if ready, out := r.ensureLinkSecret(ctx, w, &in); !ready {
		return out
	}
	pod, err := podspec.Typed[corev1.Pod](podspec.Pod(in))
	if err != nil {
		return outcome{err: err}
	}
	log.FromContext(ctx).Info("Creating runner pod", "pod", klog.KObj(pod), "policyDigest", w.policy.document.Digest.Short())
	err = r.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.overtaken(ctx, w, in)
	}
	if err != nil {
		return w.rejected(err, "pod", "")
	}
	r.memory.setSpare(w.session, incarnation{})
	w.pod = pod
	return outcome{}
}

// overtaken finds out whose pod there is although none was seen: the one that was to be
// created, by a request whose answer was lost; or that of another controller.
func (r *SessionReconciler) overtaken(ctx context.Context, w *world, in podspec.Input) outcome {
	var p corev1.Pod
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: w.session.Namespace, Name: podspec.PodName(w.session)}, &p)
	if err != nil {
		return broke(err, "reading the pod that there is already")
	}
	if podIsOurs(&p, w.session) && incarnationOf(&p) == in.Incarnation {
		r.memory.setSpare(w.session, incarnation{})
		w.pod = &p
		return outcome{}
	}
	out := r.deleteLinkSecret(ctx, w, in.Incarnation)
	if out.err == nil {
		r.memory.setSpare(w.session, incarnation{})
	}
	return out.and(outcome{after: 200 * time.Millisecond})
}

// rejected tells what the apiserver will refuse again until somebody changes
// something (a quota, an admission policy, a value) from what may pass by itself. What is
// random in a name is left out of the message: otherwise each try would cause a write.
func (w *world) rejected(err error, what, random string) outcome {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		text := err.Error()
		if random != "" {
			text = strings.ReplaceAll(text, random, "*")
		}
		w.podRefused = refuse(v1alpha1.ReasonPodRejected, "The apiserver refuses the %s: %s%s", what, cutLine(text, 1024), remedy(w.class, text))
		return outcome{after: slowly}
	}
	return broke(err, "creating %s", what)
}

// remedy is what to do about a pod that admission refuses because of what its class names.
func remedy(class *v1alpha1.AgentSessionClass, text string) string {
	for _, named := range []struct{ kind, name, field string }{
		{"RuntimeClass", class.Spec.RuntimeClassName, "runtimeClassName"},
		{"PriorityClass", class.Spec.Scheduling.PriorityClassName, "scheduling.priorityClassName"},
	} {
		if named.name != "" && strings.Contains(text, named.kind) && strings.Contains(text, named.name) {
			return fmt.Sprintf(". Create the %s %s, or have %s of class %s name one that exists (kubectl get %s); the pod is tried again every minute.",
				named.kind, named.name, named.field, class.Name, strings.ToLower(named.kind))
		}
	}
	return ""
}

// agentContainer returns the agent's part of a pod.
func agentContainer(p *corev1.Pod) *corev1.Container {
	i := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == podspec.AgentContainer })
	if i < 0 {
		return nil
	}
	return &p.Spec.InitContainers[i]
}

// incarnationOf reads which pod of the session it is from what its agent was started
// with: that cannot be edited, a label can.
func incarnationOf(p *corev1.Pod) string { return agentFlag(p, "--incarnation") }

// authorityOf reads in the same way which root the agent believes.
func authorityOf(p *corev1.Pod) string { return agentFlag(p, "--ca-hash") }

func agentFlag(p *corev1.Pod, flag string) string {
	c := agentContainer(p)
	if c == nil {
		return ""
	}
	i := slices.Index(c.Args, flag)
	if i < 0 || i+1 >= len(c.Args) {
		return ""
	}
	return c.Args[i+1]
}

// toolsContainers are the containers of a pod that tools run in. Others were put in by
// admission, a mesh for instance, and are nobody's concern here.
func toolsContainers(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		if c.Name == wire.ToolsRO || c.Name == wire.ToolsRW {
			names = append(names, c.Name)
		}
	}
	return names
}

// ended reports whether no container of the pod will ever run again.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func agentRuns(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == podspec.AgentContainer && c.State.Running != nil
	})
}

func podCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func reasonOf(p *corev1.Pod) string {
	switch {
	case p.Status.Reason != "":
		return cutLine(p.Status.Reason, 64)
	case p.DeletionTimestamp != nil:
		return "deleted"
	}
	return strings.ToLower(string(p.Status.Phase))
}
