// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// messageWindow is how many messages an agent may have that it has not answered. It
	// tells the state of 64, so none falls off before its state was seen.
	messageWindow = 48
	// messageBytes bounds the messages of one push, as encoded.
	messageBytes = 4 << 20
)

// setDesired hands the agent what is wanted and takes what it answers.
func (r *SessionReconciler) setDesired(ctx context.Context, w *world) outcome {
	if w.pod == nil || w.completed() != nil && !w.leaving() {
		r.Links.Forget(nameOf(w.session))
	}
	if !w.podUp() || !w.started() || w.completed() != nil {
		return outcome{}
	}
	e := endpointOf(w)
	if w.stranger {
		w.observation = r.Links.Last(e)
		w.observation.Unreachable, w.observation.Trouble = true, "it believes a certificate authority that the operator does not have"
		return outcome{}
	}
	if w.policy == nil || w.leaving() || !r.memory.told(w.session, w.pod).IsZero() {
		w.observation = r.Links.Last(e) // nothing new can be said; what is known stays known
		return outcome{}
	}
	w.observation, _ = r.Links.Set(ctx, e, desiredOf(w, nil))
	if w.observation.Refused == nil {
		return outcome{}
	}
	return r.replace(ctx, w, e)
}

// replace answers an agent that holds a policy made from newer objects than those of
// our cache: read what there is now, and push again naming the stamp in force, so
// that of two controllers one wins.
func (r *SessionReconciler) replace(ctx context.Context, w *world, e link.Endpoint) outcome {
	refused := w.observation.Refused
	log.FromContext(ctx).Info("The agent holds a newer policy, reading again", "inForce", refused, "ours", w.policy.stamp)
	var s v1alpha1.AgentSession
	if err := r.Live.Get(ctx, nameOf(w.session), &s); err != nil {
		return broke(err, "reading session")
	}
	if s.UID != w.session.UID || s.DeletionTimestamp != nil {
		return outcome{}
	}
	class, noClass, err := classOf(ctx, r.Live, &s)
	if err != nil {
		return outcome{err: err}
	}
	namespace := namespaceObject(s.Namespace)
	if err := r.Live.Get(ctx, types.NamespacedName{Name: s.Namespace}, namespace); err != nil {
		return broke(err, "reading namespace %s", s.Namespace)
	}
	w.session, w.class, w.noClass, w.namespace = &s, class, noClass, namespace
	w.resolve()
	if w.policy == nil {
		return outcome{}
	}
	out := r.widenNetwork(ctx, w)
	w.observation, _ = r.Links.Set(ctx, e, desiredOf(w, refused))
	if w.observation.Refused != nil { // somebody else was faster, and nothing else brings us back
		return out.and(outcome{after: time.Second})
	}
	return out
}

func endpointOf(w *world) link.Endpoint {
	return link.Endpoint{
		Session:     nameOf(w.session),
		SessionUID:  string(w.session.UID),
		Incarnation: incarnationOf(w.pod),
		Authority:   authorityOf(w.pod),
		PodUID:      string(w.pod.UID),
		Address:     net.JoinHostPort(w.pod.Status.PodIP, strconv.Itoa(wire.Port)),
		Pulse:       pulseOf(w.pod),
	}
}

// pulseOf changes when a container of the pod was started anew or ended, and when the node
// stops or begins again to report: an agent that nobody listens to is then looked at.
func pulseOf(p *corev1.Pod) uint64 {
	h := fnv.New64a()
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintln(h, c.Name, c.RestartCount, c.State.Running != nil)
	}
	if c := podCondition(p, corev1.PodReady); c != nil {
		fmt.Fprintln(h, c.Status)
	}
	return h.Sum64()
}

func desiredOf(w *world, replaces *policy.Stamp) wire.Desired {
	s, class := w.session, w.class
	d := wire.Desired{
		Wire:        wire.Version,
		SessionUID:  string(s.UID),
		Incarnation: incarnationOf(w.pod),
		Config: wire.Config{
			Session:       types.NamespacedName{Namespace: s.Namespace, Name: s.Name}.String(),
			Prompt:        s.Spec.Prompt,
			SystemPrompt:  class.Spec.SystemPrompt,
			Instructions:  s.Spec.Instructions,
			Tools:         toolNames(class),
			Model:         wireModel(class.Spec.Model, w.policy.model),
			Workspace:     wire.Workspace,
			MinimumLevel:  minimumOf(class),
			TraceEndpoint: class.Spec.Telemetry.OTLPEndpoint,

			Limits:         limitsOf(withDefaults(s.Spec.Limits, class.Spec.Defaults.Limits), class.Spec.Limits),
			RuntimeContext: wire.RuntimeContext(s.Spec.RuntimeContext),
			GraceSeconds:   class.Spec.Termination.GraceSeconds,

			ApprovalTimeoutSeconds: s.Spec.Approval.TimeoutSeconds,
		},
		Policy:       string(w.policy.document.Bytes),
		Stamp:        w.policy.stamp,
		Replaces:     replaces,
		LeaseSeconds: cmp.Or(class.Spec.PolicyLeaseSeconds, v1alpha1.DefaultPolicyLeaseSeconds),
		Messages:     undelivered(w.messages),
	}
	if l := s.Status.Log; l != nil {
		d.LogHead = wire.LogHead{Seq: uint64(l.LastSeq), Digest: l.Digest}
	}
	return d
}

// withDefaults are the session's limits, and the default ones where it has none.
func withDefaults(own, defaults *v1alpha1.Limits) *v1alpha1.Limits {
	if own == nil || defaults == nil {
		return cmp.Or(own, defaults)
	}
	return &v1alpha1.Limits{
		MaxTurns:        cmp.Or(own.MaxTurns, defaults.MaxTurns),
		MaxStepsPerTurn: cmp.Or(own.MaxStepsPerTurn, defaults.MaxStepsPerTurn),
		MaxTotalTokens:  cmp.Or(own.MaxTotalTokens, defaults.MaxTotalTokens),
	}
}

// limitsOf is, part by part, the lower of the limits that are set.
func limitsOf(all ...*v1alpha1.Limits) wire.SessionLimits {
	var l wire.SessionLimits
	lower := func(have *int64, want int64) {
		if want > 0 && (*have == 0 || want < *have) {
			*have = want
		}
	}
	for _, x := range all {
		if x != nil {
			lower(&l.MaxTurns, x.MaxTurns)
			lower(&l.MaxStepsPerTurn, x.MaxStepsPerTurn)
			lower(&l.MaxTotalTokens, x.MaxTotalTokens)
		}
	}
	return l
}

// undelivered are the messages to deliver now, in order and within the window.
func undelivered(messages []v1alpha1.SessionMessage) []wire.Message {
	var list []wire.Message
	open, size := 0, 0
	for _, m := range messages {
		if isTrue(m.Status.Conditions, v1alpha1.ConditionAnswered) || sessionOver(&m) {
			continue
		}
		open++
		if isTrue(m.Status.Conditions, v1alpha1.ConditionDelivered) {
			continue
		}
		encoded, err := json.Marshal([]string{m.Spec.Author, m.Spec.Content})
		if err != nil {
			panic(fmt.Sprintf("encoding strings: %v", err)) // cannot happen
		}
		size += len(encoded)
		if open > messageWindow || size > messageBytes {
			break // in order: nothing overtakes
		}
		list = append(list, wire.Message{
			UID: string(m.UID), CreatedAt: m.CreationTimestamp.UTC(), Author: m.Spec.Author, Content: m.Spec.Content, Interrupt: m.Spec.Interrupt,
		})
	}
	return list
}

func wireModel(m v1alpha1.Model, name string) wire.Model {
	return wire.Model{
		Provider: string(m.Provider), BaseURL: m.BaseURL, Name: name,
		ContextWindow: m.ContextWindow, ReturnReasoning: m.ReturnReasoning, KeySecret: m.KeySecretName, CABundle: m.CABundle,
	}
}

func toolNames(class *v1alpha1.AgentSessionClass) []string {
	var names []string
	for _, t := range class.Spec.Tools {
		names = append(names, string(t))
	}
	return names
}
