// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// countersEvery is how often status is written when nothing but counters moved.
const countersEvery = 30 * time.Second

// statusOf computes the whole status from the world. It is the only place that does,
// and the same world gives the same status.
func statusOf(w *world) v1alpha1.AgentSessionStatus {
	s := *w.session.Status.DeepCopy()
	s.ObservedGeneration = w.session.Generation
	if w.class != nil && w.refused == nil {
		s.ClassName = w.class.Name
	}
	if w.policy != nil {
		s.Policy = policyStatus(w.policy)
		s.Model = w.policy.model
	}
	if w.pod != nil {
		s.PodName, s.NodeName = w.pod.Name, w.pod.Spec.NodeName
		if storage := podspec.StorageOf(w.pod); storage != nil {
			s.Storage = storage
		}
		if s.StartTime == nil && w.podUp() {
			s.StartTime = new(metav1.NewTime(w.now).Rfc3339Copy())
		}
	}
	observedStatus(w, &s)
	for _, c := range conditionsOf(w) {
		meta.SetStatusCondition(&s.Conditions, c)
	}
	if s.Activity != nil && !isTrue(s.Conditions, v1alpha1.ConditionWaitingForApproval) {
		s.Activity.PendingApprovals = 0 // also where no agent is left to say so
	}
	if w.pod == nil && !isTrue(s.Conditions, v1alpha1.ConditionCompleted) {
		s.PodName, s.NodeName = "", ""
	}
	if s.CompletionTime == nil && isTrue(s.Conditions, v1alpha1.ConditionCompleted) {
		s.CompletionTime = new(metav1.NewTime(w.now).Rfc3339Copy())
	}
	return s
}

func policyStatus(p *resolved) *v1alpha1.PolicyStatus {
	d := p.document.Policy
	s := &v1alpha1.PolicyStatus{
		Mode:     v1alpha1.SandboxMode(d.Mode.String()),
		Network:  v1alpha1.NetworkAccess(d.Network.String()),
		Approval: v1alpha1.ApprovalPolicy(d.Approval.String()),
		Digest:   string(p.document.Digest),
	}
	for _, c := range p.clamps {
		s.Clamped = append(s.Clamped, v1alpha1.Clamp{Field: c.Field, Requested: c.Requested, By: v1alpha1.ClampSource(c.By)})
	}
	return s
}

// observedStatus takes over what the agent says of itself. What it has not said stays.
func observedStatus(w *world, s *v1alpha1.AgentSessionStatus) {
	o := w.observation.Observed
	if o == nil {
		return
	}
	s.Applied = appliedStatus(w, o.Applied, s.Applied)
	if e, ok := w.enforcement(); ok {
		s.Enforcement = e
	}
	if state, ok := activityStates[o.Activity.State]; ok {
		before := s.Activity
		s.Activity = &v1alpha1.ActivityStatus{
			State: state, Turns: int64(o.Activity.Turns), Steps: int64(o.Activity.Steps), Calls: int64(o.Activity.Calls),
			PendingApprovals: int32(len(o.Approvals)),
		}
		switch {
		case state != v1alpha1.ActivityIdle:
		case before != nil && before.IdleSince != nil:
			s.Activity.IdleSince = before.IdleSince
		default:
			s.Activity.IdleSince = new(metav1.NewTime(w.now).Rfc3339Copy())
		}
	}
	u := o.Usage
	s.Usage = &v1alpha1.UsageStatus{
		InputTokens: u.Input, CachedInputTokens: u.CachedInput, OutputTokens: u.Output,
		TotalTokens: u.Input + u.CachedInput + u.Output,
	}
	if in := u.Input + u.CachedInput; in > 0 {
		s.Usage.CachedPercent = int32(100 * u.CachedInput / in)
	}
	if o.Log.Seq > 0 {
		s.Log = &v1alpha1.LogStatus{LastSeq: int64(o.Log.Seq), Digest: o.Log.Digest}
	}
}

var activityStates = map[wire.State]v1alpha1.ActivityState{
	wire.Idle: v1alpha1.ActivityIdle, wire.InTurn: v1alpha1.ActivityInTurn, wire.Paused: v1alpha1.ActivityPaused,
	wire.WaitingForApproval: v1alpha1.ActivityWaitingForApproval,
}

// appliedStatus is the policy that the agent confirmed. A digest that names no policy
// which this operator could have sent is not believed.
func appliedStatus(w *world, a *wire.Applied, before *v1alpha1.AppliedStatus) *v1alpha1.AppliedStatus {
	if a == nil || a.Stamp.SessionUID != string(w.session.UID) {
		return before
	}
	p, ok := policyWith(a.Digest)
	if !ok {
		return before
	}
	at := metav1.NewTime(a.Time).Rfc3339Copy()
	if at.IsZero() {
		at = w.session.CreationTimestamp
	}
	return &v1alpha1.AppliedStatus{
		Mode:            v1alpha1.SandboxMode(p.Mode.String()),
		Network:         v1alpha1.NetworkAccess(p.Network.String()),
		Approval:        v1alpha1.ApprovalPolicy(p.Approval.String()),
		Digest:          string(a.Digest),
		Generation:      a.Stamp.SessionGeneration,
		Time:            at,
		SnapshotSeq:     int64(a.SnapshotSeq),
		KilledProcesses: int64(a.Killed),
	}
}

var levels = []v1alpha1.EnforcementLevel{
	v1alpha1.EnforcementNone, v1alpha1.EnforcementMount, v1alpha1.EnforcementFiles, v1alpha1.EnforcementFull,
}

// enforcement is what all tools containers of the pod proved: the lowest level and
// the layers that each has. ok is false until all have reported.
func (w *world) enforcement() (e *v1alpha1.EnforcementStatus, ok bool) {
	if w.pod == nil || len(w.disconnected()) > 0 {
		return nil, false
	}
	for _, name := range toolsContainers(w.pod) {
		report := w.reportOf(name).Report
		level := max(0, slices.Index(levels, v1alpha1.EnforcementLevel(report.Level)))
		next := &v1alpha1.EnforcementStatus{Level: levels[level], LandlockABI: int32(report.LandlockABI), Layers: report.Layers}
		if e != nil {
			next.Level = levels[min(level, slices.Index(levels, e.Level))]
			next.LandlockABI = min(next.LandlockABI, e.LandlockABI)
			next.Layers = slices.DeleteFunc(slices.Clone(report.Layers), func(l string) bool { return !slices.Contains(e.Layers, l) })
		}
		e = next
	}
	return e, e != nil
}

// disconnected are the tools containers of the pod that the agent does not hold.
func (w *world) disconnected() []string {
	var names []string
	for _, name := range toolsContainers(w.pod) {
		if c := w.reportOf(name); c == nil || !c.Connected {
			names = append(names, name)
		}
	}
	return names
}

func (w *world) reportOf(container string) *wire.Container {
	if w.observation.Observed == nil {
		return nil
	}
	list := w.observation.Observed.Containers
	if i := slices.IndexFunc(list, func(c wire.Container) bool { return c.Name == container }); i >= 0 {
		return &list[i]
	}
	return nil
}

func (w *world) problem(reasons ...wire.ProblemReason) *wire.Problem {
	if w.observation.Observed == nil {
		return nil
	}
	list := w.observation.Observed.Problems
	if i := slices.IndexFunc(list, func(p wire.Problem) bool { return slices.Contains(reasons, p.Reason) }); i >= 0 {
		return &list[i]
	}
	return nil
}

// change says how much of a status changed.
type change uint8

const (
	unchanged change = iota
	countersOnly
	changedMore
)

// compare tells what is worth a write of its own. Counters are not, and neither is the node: a pod
// is scheduled a moment before it starts, and its name goes along with that. Nor is that an agent
// has been heard for the first time, as long as it can do nothing.
func compare(before, after v1alpha1.AgentSessionStatus) change {
	if equality.Semantic.DeepEqual(before, after) {
		return unchanged
	}
	after = *after.DeepCopy()
	after.NodeName = before.NodeName
	switch {
	case before.Activity != nil && after.Activity != nil && before.Usage != nil && before.Log != nil:
		state, since, pending := after.Activity.State, after.Activity.IdleSince, after.Activity.PendingApprovals
		after.Usage, after.Log, after.Activity = before.Usage, before.Log, new(*before.Activity)
		after.Activity.State, after.Activity.IdleSince, after.Activity.PendingApprovals = state, since, pending
	case before.Activity == nil && equality.Semantic.DeepEqual(after.Activity, &v1alpha1.ActivityStatus{State: v1alpha1.ActivityPaused}):
		after.Usage, after.Log, after.Activity = before.Usage, before.Log, nil
	}
	if equality.Semantic.DeepEqual(before, after) {
		return countersOnly
	}
	return changedMore
}
