// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// resolved is the policy of a session, what it was made from, and what was asked.
type resolved struct {
	document policy.Document
	clamps   []policy.Clamp
	stamp    policy.Stamp
	model    string
}

// resolve decides what a session may do: the lowest of spec, class and namespace, and
// of what its pod was built for. A session that is refused keeps the policy that it
// has, bounded by the ceilings as they are now; one that has none gets none.
func resolve(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass, namespace *metav1.PartialObjectMetadata, pod *corev1.Pod) (*resolved, *refusal) {
	ask, ceiling, err := parse(s, class)
	if err != nil {
		return nil, refuse(v1alpha1.ReasonModeNotPermitted, "The policy cannot be resolved: %v.", err)
	}
	model, refused := modelOf(s, class)
	if refused == nil {
		refused = namespaceOf(class, namespace)
	}
	if refused == nil {
		refused = caBundleOf(class)
	}
	if refused == nil && pod == nil {
		refused = toolsImageOf(s, class)
	}
	_, exceeds := policy.Resolve(ask, ceiling, policy.Unbounded) // what a namespace takes away, a class does not reject
	if len(exceeds) > 0 && class.Spec.Ceiling.OnExceed == v1alpha1.OnExceedReject && refused == nil {
		refused = refuse(v1alpha1.ReasonModeNotPermitted, "Class %s rejects what exceeds its ceiling: %s. Ask for no more, or have the ceiling raised.",
			class.Name, describeClamps(exceeds))
	}
	if pod != nil && !slices.Contains(toolsContainers(pod), wire.ToolsRW) {
		// The pod has no container that could write: the class was raised after it was built.
		ceiling.Mode = policy.ReadOnly
	}
	bound, _ := namespaceCeiling(namespace)
	p, clamps := policy.Resolve(ask, ceiling, bound)
	if refused != nil {
		held, ok := heldPolicy(s)
		if !ok {
			return nil, refused
		}
		held.Ceiling = p.Ceiling
		p, clamps = policy.Meet(held, p.Ceiling), nil
	}
	return &resolved{document: policy.Encode(p), clamps: clamps, stamp: stampOf(s, class, namespace), model: model}, refused
}

func parse(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) (ask policy.Request, ceiling policy.Ceiling, err error) {
	c := class.Spec.Ceiling
	var errs [6]error
	// What is unset is the narrowest, but for the ceiling of approval: asking gives nobody anything.
	ask.Mode, errs[0] = parseOr(policy.ParseMode, string(s.Spec.Sandbox.Mode))
	ask.Network, errs[1] = parseOr(policy.ParseNetwork, string(s.Spec.Sandbox.Network))
	ask.Approval, errs[2] = parseOr(policy.ParseApproval, string(s.Spec.Approval.Policy))
	ceiling.Mode, errs[3] = parseOr(policy.ParseMode, string(c.MaxMode))
	ceiling.Network, errs[4] = parseOr(policy.ParseNetwork, string(c.MaxNetwork))
	ceiling.Approval, errs[5] = parseOr(policy.ParseApproval, string(cmp.Or(c.MaxApproval, v1alpha1.ApprovalAsk)))
	return ask, ceiling, errors.Join(errs[:]...)
}

func parseOr[T any](parse func(string) (T, error), s string) (v T, err error) {
	if s == "" {
		return v, nil
	}
	return parse(s)
}

// modelOf is the model of a session. Once it has started, it keeps the one it has.
func modelOf(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) (string, *refusal) {
	if s.Status.StartTime != nil && s.Status.Model != "" {
		return s.Status.Model, nil
	}
	m := class.Spec.Model
	if s.Spec.Model == nil || s.Spec.Model.Name == m.DefaultName {
		return m.DefaultName, nil
	}
	if !slices.Contains(m.AllowedNames, s.Spec.Model.Name) {
		allowed := append([]string{m.DefaultName}, m.AllowedNames...)
		slices.Sort(allowed)
		return "", refuse(v1alpha1.ReasonModelNotAllowed, "Class %s does not allow the model %q: create the session anew with one of %s, or have the class allow it.",
			class.Name, s.Spec.Model.Name, cutLine(strings.Join(slices.Compact(allowed), ", "), 512))
	}
	return s.Spec.Model.Name, nil
}

// heldPolicy is the policy that a session was accepted with last.
func heldPolicy(s *v1alpha1.AgentSession) (policy.Policy, bool) {
	if s.Status.Policy == nil {
		return policy.Policy{}, false
	}
	p, ok := policyWith(policy.Digest(s.Status.Policy.Digest))
	return p, ok
}

func stampOf(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass, namespace *metav1.PartialObjectMetadata) policy.Stamp {
	return policy.Stamp{
		SessionUID:        string(s.UID),
		SessionGeneration: s.Generation,
		ClassUID:          string(class.UID),
		ClassCreated:      class.CreationTimestamp.UTC(),
		ClassGeneration:   class.Generation,
		NamespaceUID:      string(namespace.UID),
		NamespaceVersion:  namespace.ResourceVersion,
	}
}

func describeClamps(clamps []policy.Clamp) string {
	var parts []string
	for _, c := range clamps {
		by := "the class"
		if c.By == policy.Namespace {
			by = "the label " + v1alpha1.MaxModeLabel + " of the namespace"
		}
		parts = append(parts, fmt.Sprintf("%s %s was asked, at most %s is allowed by %s", c.Field, c.Requested, c.Given, by))
	}
	return strings.Join(parts, "; ")
}

// policies are all policies that there are, by their digests: an agent names a policy
// by its digest alone, and status says what it is.
var policies = sync.OnceValue(func() map[policy.Digest]policy.Policy {
	all := map[policy.Digest]policy.Policy{}
	for _, ceiling := range ceilings() {
		for _, c := range ceilings() {
			p := policy.Policy{Mode: c.Mode, Network: c.Network, Approval: c.Approval, Ceiling: ceiling}
			if policy.Meet(p, ceiling) == p {
				all[policy.Encode(p).Digest] = p
			}
		}
	}
	return all
})

func ceilings() []policy.Ceiling {
	var all []policy.Ceiling
	for _, m := range policy.Modes() {
		for _, n := range []policy.Network{policy.NetworkNone, policy.NetworkOpen} {
			for _, a := range []policy.Approval{policy.ApprovalNever, policy.ApprovalAsk} {
				all = append(all, policy.Ceiling{Mode: m, Network: n, Approval: a})
			}
		}
	}
	return all
}

func policyWith(d policy.Digest) (policy.Policy, bool) {
	p, ok := policies()[d]
	return p, ok
}
