// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// +kubebuilder:rbac:groups=agentsession.dev,resources=agentsessions;agentsessionclasses;sessionmessages,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch

// fieldSession is the field of messages that names their session.
const fieldSession = "spec.sessionName"

// world is everything that a reconcile knows. What it read is set by observe; the
// phases add what they found out.
type world struct {
	now     time.Time
	session *v1alpha1.AgentSession // nil when absent

	class          *v1alpha1.AgentSessionClass // nil when there is none
	noClass        *refusal                    // why
	namespace      *metav1.PartialObjectMetadata
	pod            *corev1.Pod                   // nil when absent; ours
	foreign        bool                          // a pod of another owner has the name
	foreignFor     time.Duration                 // since this process saw it first
	claim          *corev1.PersistentVolumeClaim // nil when absent or not needed; ours
	foreignClaim   bool                          // a claim of another owner has the name
	inputs         string                        // digest of what a pod would be built from today
	network        *networkingv1.NetworkPolicy   // nil when absent; ours
	foreignNetwork bool                          // a NetworkPolicy of another owner has the name
	messages       []v1alpha1.SessionMessage     // in the order of delivery

	policy      *resolved        // nil when there is none to enforce
	refused     *refusal         // why the spec is not accepted
	podRefused  *refusal         // why there is no pod
	observation link.Observation // of the agent
	stranger    bool             // the agent believes another operator
	lastWord    bool             // nothing more will be heard of it
}

func (r *SessionReconciler) observe(ctx context.Context, name types.NamespacedName) (*world, error) {
	w := &world{now: r.Now()}
	var err error
	if w.messages, err = r.messagesFor(ctx, r.Client, name); err != nil {
		return nil, err
	}
	var s v1alpha1.AgentSession
	err = r.Client.Get(ctx, name, &s)
	switch {
	case apierrors.IsNotFound(err):
		return w, nil
	case err != nil:
		return nil, fmt.Errorf("reading session: %w", err)
	}
	w.session = r.memory.newest(&s)
	if w.class, w.noClass, err = classOf(ctx, r.Client, w.session); err != nil {
		return nil, err
	}
	if err := r.observeNamespace(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observePod(ctx, w); err != nil {
		return nil, err
	}
	w.foreignFor = r.memory.foreign(w.session, w.foreign, w.now)
	if err := r.observeNetwork(ctx, w); err != nil {
		return nil, err
	}
	w.inputs = r.inputsToday(w)
	return w, r.observeClaim(ctx, w)
}

// observePod reads the pod. That there is none is believed of the apiserver alone:
// from it follows that one is created, or that the session is lost.
func (r *SessionReconciler) observePod(ctx context.Context, w *world) error {
	key := types.NamespacedName{Namespace: w.session.Namespace, Name: podspec.PodName(w.session)}
	var p corev1.Pod
	err := r.Client.Get(ctx, key, &p)
	if apierrors.IsNotFound(err) {
		p = corev1.Pod{}
		err = r.Live.Get(ctx, key, &p)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading pod %s: %w", key.Name, err)
	case podIsOurs(&p, w.session):
		w.pod, w.stranger = &p, !r.Authority.Known(authorityOf(&p))
	default:
		w.foreign = true
	}
	return nil
}

// podIsOurs tells the session's pod from one that only has its name, or also names the session as
// its owner, which whoever may create pods can write.
func podIsOurs(p *corev1.Pod, s *v1alpha1.AgentSession) bool {
	return metav1.IsControlledBy(p, s) && agentFlag(p, "--session-uid") == string(s.UID)
}

// classOf finds the class of a session: the one that it was accepted with, else the
// one that it names, else the default.
func classOf(ctx context.Context, c client.Reader, s *v1alpha1.AgentSession) (*v1alpha1.AgentSessionClass, *refusal, error) {
	name := cmp.Or(s.Status.ClassName, s.Spec.ClassName)
	if name == "" {
		return defaultClass(ctx, c)
	}
	var class v1alpha1.AgentSessionClass
	err := c.Get(ctx, types.NamespacedName{Name: name}, &class)
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse(v1alpha1.ReasonClassNotFound,
			"AgentSessionClass %q does not exist: create it, or create the session anew with another className (kubectl get agsc).", name), nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading class %s: %w", name, err)
	}
	return &class, nil, nil
}

func defaultClass(ctx context.Context, c client.Reader) (*v1alpha1.AgentSessionClass, *refusal, error) {
	var all v1alpha1.AgentSessionClassList
	if err := c.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("listing classes: %w", err)
	}
	var marked []v1alpha1.AgentSessionClass
	var names []string
	for _, class := range all.Items {
		if class.Annotations[v1alpha1.DefaultClassAnnotation] == "true" {
			marked, names = append(marked, class), append(names, class.Name)
		}
	}
	switch len(marked) {
	case 0:
		return nil, refuse(v1alpha1.ReasonClassNotFound,
			"The session names no class and none is the default: annotate one with %s=true, or create the session anew with a className.",
			v1alpha1.DefaultClassAnnotation), nil
	case 1:
		return &marked[0], nil, nil
	}
	slices.Sort(names)
	return nil, refuse(v1alpha1.ReasonAmbiguousDefaultClass,
		"The session names no class and %d are marked as the default: %s. Take the annotation %s from all but one.",
		len(names), strings.Join(names, ", "), v1alpha1.DefaultClassAnnotation), nil
}

// messagesFor lists the messages of a session in the order of delivery: by creation
// time, then by the resource version. Nothing is written to a message before it is
// delivered, so that of one that waits is the version it was created with.
func (r *SessionReconciler) messagesFor(ctx context.Context, c client.Reader, name types.NamespacedName) ([]v1alpha1.SessionMessage, error) {
	var list v1alpha1.SessionMessageList
	if err := c.List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{fieldSession: name.Name}); err != nil {
		return nil, fmt.Errorf("listing messages: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.SessionMessage) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		c, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
		if err != nil || c == 0 {
			return strings.Compare(string(a.UID), string(b.UID))
		}
		return c
	})
	return list.Items, nil
}

// started reports whether the agent may have been told anything. It is durable
// before it is so.
func (w *world) started() bool { return w.session.Status.StartTime != nil }

// completed returns the condition of a session that is finished for good.
func (w *world) completed() *metav1.Condition {
	c := meta.FindStatusCondition(w.session.Status.Conditions, v1alpha1.ConditionCompleted)
	if c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// podUp reports whether the agent can be spoken with, and its tools may start.
func (w *world) podUp() bool {
	return w.pod != nil && w.pod.DeletionTimestamp == nil && !ended(w.pod) && w.pod.Status.PodIP != "" && agentRuns(w.pod) && filled(w.pod)
}
