// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// verdict is a condition without its type.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, format string, args ...any) verdict {
	return verdict{metav1.ConditionTrue, reason, fmt.Sprintf(format, args...)}
}

func no(reason, format string, args ...any) verdict {
	return verdict{metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func noFor(r *refusal) verdict { return verdict{metav1.ConditionFalse, r.reason, r.message} }

func (v verdict) is() bool { return v.status == metav1.ConditionTrue }

// conditionsOf computes every condition from the world. Each may look at those
// before it; Ready is the first that is not as wanted.
func conditionsOf(w *world) []metav1.Condition {
	completed := completedOf(w)
	accepted := acceptedOf(w)
	suspended := suspendedOf(w, completed)
	runner := runnerReadyOf(w, completed, suspended)
	enforced := enforcedOf(w, completed, suspended)
	mode := modeAppliedOf(w, completed, suspended, enforced)
	active := activeOf(w, completed, suspended, runner)
	waiting := waitingForApprovalOf(w, completed, suspended)
	ready := readyOf(w, completed, accepted, suspended, runner, enforced, mode)
	outdated := outdatedOf(w, completed)
	stalled := stalledOf(completed, accepted, suspended, runner, enforced)

	var list []metav1.Condition
	for _, c := range []struct {
		name string
		verdict
	}{
		{v1alpha1.ConditionReady, ready},
		{v1alpha1.ConditionAccepted, accepted},
		{v1alpha1.ConditionRunnerReady, runner},
		{v1alpha1.ConditionEnforced, enforced},
		{v1alpha1.ConditionModeApplied, mode},
		{v1alpha1.ConditionActive, active},
		{v1alpha1.ConditionWaitingForApproval, waiting},
		{v1alpha1.ConditionSuspended, suspended},
		{v1alpha1.ConditionOutdated, outdated},
		{v1alpha1.ConditionCompleted, completed},
		{v1alpha1.ConditionStalled, stalled},
	} {
		list = append(list, metav1.Condition{
			Type: c.name, Status: c.status, Reason: c.reason, Message: c.message,
			ObservedGeneration: w.session.Generation, LastTransitionTime: metav1.NewTime(w.now).Rfc3339Copy(),
		})
	}
	return list
}

func completedOf(w *world) verdict {
	if c := w.completed(); c != nil { // for good
		return verdict{c.Status, c.Reason, c.Message}
	}
	if why := lost(w); why != "" {
		return yes(v1alpha1.ReasonStateLost, "%s", why)
	}
	if p := w.problem(wire.StateLost); p != nil {
		return yes(v1alpha1.ReasonStateLost, "The agent found that the session's log is lost: %s", cutLine(p.Message, 512))
	}
	if v, ok := finished(w); ok {
		return v
	}
	return no(v1alpha1.ReasonRunning, "The session goes on.")
}

func acceptedOf(w *world) verdict {
	if w.refused != nil {
		return noFor(w.refused)
	}
	return yes(v1alpha1.ReasonAccepted, "Class %s was found and the policy is resolved.", w.class.Name)
}

func runnerReadyOf(w *world, completed, suspended verdict) verdict {
	o := w.observation
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case suspended.is():
		return no(v1alpha1.ReasonSuspended, "The session is suspended and has no pod.")
	case w.foreign:
		return no(v1alpha1.ReasonNameTaken, "The pod %s does not belong to the session and has the name of its pod. It is neither used nor removed: delete it, and the session goes on.", podspec.PodName(w.session))
	case w.podRefused != nil:
		return noFor(w.podRefused)
	case w.pod == nil && w.claim != nil && w.claim.DeletionTimestamp != nil:
		return no(v1alpha1.ReasonPodPending, "The volume claim %s is being deleted; no pod is started on it.", w.claim.Name)
	case w.pod == nil && w.refused != nil:
		return no(v1alpha1.ReasonNotAccepted, "No pod is created before the session is accepted.")
	case w.pod == nil:
		return no(v1alpha1.ReasonPodPending, "The pod is being started.")
	}
	if t := podTrouble(w.pod); t != nil {
		return noFor(t)
	}
	switch {
	case filling(w.pod):
		return no(v1alpha1.ReasonPodPending, "The source of the workspace is being fetched.")
	case w.stuckInMounts():
		return no(v1alpha1.ReasonPodPending, "The node %s has not made the volumes and the network of the pod ready yet: see kubectl describe pod %s.", w.pod.Spec.NodeName, w.pod.Name)
	case !w.podUp():
		return no(v1alpha1.ReasonPodPending, "The pod is being started.")
	case w.stranger:
		return no(v1alpha1.ReasonAuthorityUnknown, "The pod was started with a certificate authority that the operator does not have any more, so neither believes the other: delete the pod %s. %s",
			w.pod.Name, w.whatDeletionCosts())
	case o.Unreachable && nodeLost(w.pod):
		return no(v1alpha1.ReasonNodeLost, "The node %s does not report and the agent does not answer: %s", w.pod.Spec.NodeName, o.Trouble)
	case o.Unreachable:
		return no(v1alpha1.ReasonRunnerUnreachable, "The agent has not answered the operator for 30 seconds: %s", o.Trouble)
	case o.Observed == nil:
		return w.before(v1alpha1.ConditionRunnerReady, no(v1alpha1.ReasonPodPending, "The pod is being started."))
	}
	if p := w.problem(wire.LogUnwritable, wire.LogRolledBack, wire.ModelKeyMissing); p != nil {
		return no(string(p.Reason), "%s", message(p))
	}
	if away := w.disconnected(); len(away) > 0 {
		if p := w.problem(wire.ToolsUnreachable); p != nil {
			return no(v1alpha1.ReasonToolsUnreachable, "%s", message(p))
		}
		if t := restarted(w.pod, away); t != nil {
			return noFor(t)
		}
		return no(v1alpha1.ReasonPodPending, "The pod is being started.")
	}
	return yes(v1alpha1.ReasonRunnerReady, "All containers run and the agent answers.")
}

func (w *world) whatDeletionCosts() string {
	if w.persistent() {
		return "The session goes on in the next one."
	}
	return "The session ends with it: its log is in an EmptyDir."
}

// unheard reports whether the agent has not answered this process yet and is not
// overdue: a controller that starts must not take its own ignorance for trouble.
func (w *world) unheard() bool {
	return w.observation.Observed == nil && !w.observation.Unreachable && w.podUp()
}

// before is the condition as it was where an earlier controller had an answer of the agent, or had
// waited for one long enough; else otherwise.
func (w *world) before(condition string, otherwise verdict) verdict {
	c := meta.FindStatusCondition(w.session.Status.Conditions, condition)
	if c == nil || w.session.Status.Applied == nil && !silenceTold[c.Reason] {
		return otherwise
	}
	return verdict{c.Status, c.Reason, c.Message}
}

// silenceTold are the reasons that tell of an agent that does not answer.
var silenceTold = map[string]bool{v1alpha1.ReasonRunnerUnreachable: true, v1alpha1.ReasonNodeLost: true}

func message(p *wire.Problem) string {
	return cmp.Or(p.Message, "The agent gives no details; see the pod's log.")
}

const unproved = "The pod has not yet proved what its node can enforce."

func enforcedOf(w *world, completed, suspended verdict) verdict {
	if completed.is() {
		return no(completed.reason, "The session is finished.")
	}
	if suspended.is() {
		return no(v1alpha1.ReasonSuspended, "The session is suspended: no tool runs.")
	}
	if w.pod != nil && w.pod.DeletionTimestamp != nil {
		return no(v1alpha1.ReasonAwaitingProbe, "The pod is going away; the next one proves anew what its node can enforce.")
	}
	if p := w.problem(wire.LandlockUnavailable, wire.ProbeFailed, wire.BelowMinimum); p != nil {
		return no(string(p.Reason), "%s", message(p))
	}
	e, ok := w.enforcement()
	switch {
	case !ok && w.unheard():
		return w.before(v1alpha1.ConditionEnforced, no(v1alpha1.ReasonAwaitingProbe, unproved))
	case !ok:
		return no(v1alpha1.ReasonAwaitingProbe, unproved)
	case w.policy == nil || w.class == nil:
		return no(v1alpha1.ReasonNotAccepted, "There is no policy that could be enforced.")
	}
	level, mode := wire.Level(e.Level), w.policy.document.Policy.Mode
	switch needed := wire.LevelNeeded(minimumOf(w.class), mode); {
	case level.AtLeast(needed):
		return yes(v1alpha1.ReasonEnforced, "%s proved in every tools container: %s (Landlock ABI %d).", e.Level, strings.Join(e.Layers, ", "), e.LandlockABI)
	case level.AtLeast(wire.LevelFor(mode)):
		return no(v1alpha1.ReasonBelowMinimum,
			"The node can enforce %s and class %s demands %s: no tool runs. Use nodes with Linux 6.12 or later, or lower the class's enforcement.minimum.",
			e.Level, w.class.Name, needed)
	}
	return no(v1alpha1.ReasonLandlockUnavailable,
		"The node can enforce %s with Landlock ABI %d, and %s needs %s: no tool runs. Use nodes with Linux 6.2 or later; 6.12 for everything.",
		e.Level, e.LandlockABI, mode, wire.LevelFor(mode))
}

// minimumOf is the level of enforcement that a class demands.
func minimumOf(class *v1alpha1.AgentSessionClass) wire.Level {
	return wire.Level(cmp.Or(class.Spec.Enforcement.Minimum, v1alpha1.DefaultMinimum))
}

func modeAppliedOf(w *world, completed, suspended, enforced verdict) verdict {
	o := w.observation
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case w.refused != nil:
		return no(v1alpha1.ReasonNotAccepted, "The policy of this generation is not accepted.")
	case suspended.is():
		return no(v1alpha1.ReasonSuspended, "The session is suspended; %s is applied before anything runs again.", w.policy.document.Policy.Mode)
	case w.unheard() && w.session.Status.Policy != nil && w.session.Status.Policy.Digest == string(w.policy.document.Digest) &&
		w.session.Status.ObservedGeneration == w.session.Generation:
		return w.before(v1alpha1.ConditionModeApplied, no(v1alpha1.ReasonPending, "The agent has not confirmed %s yet.", w.policy.document.Policy.Mode))
	case w.pod == nil, !w.podUp(), o.Observed == nil && !o.Unreachable:
		return no(v1alpha1.ReasonPending, "The agent has not confirmed %s yet.", w.policy.document.Policy.Mode)
	case o.Unreachable:
		return no(v1alpha1.ReasonRunnerUnreachable, "The agent does not answer, so nothing confirms %s.", w.policy.document.Policy.Mode)
	case o.Refused != nil:
		return no(v1alpha1.ReasonPolicyOlder, "The agent holds a policy made from newer objects; the operator reads them again.")
	case notEnforced[enforced.reason]:
		return no(v1alpha1.ReasonNotEnforced, "The node does not enforce %s as it must: no tool runs.", w.policy.document.Policy.Mode)
	case len(o.Observed.Unconfirmed) > 0 && o.Observed.Applied != nil: // before the first policy nothing ran
		return no(v1alpha1.ReasonDraining, "What may not run under %s is being ended.", w.policy.document.Policy.Mode)
	case !appliedNow(w):
		return no(v1alpha1.ReasonPending, "The agent has not confirmed %s yet.", w.policy.document.Policy.Mode)
	case len(w.policy.clamps) > 0:
		return yes(v1alpha1.ReasonClamped, "%s is enforced, less than the spec asks for: %s.",
			w.policy.document.Policy.Mode, describeClamps(w.policy.clamps))
	}
	return yes(v1alpha1.ReasonApplied, "%s is enforced, and the model is told before its next answer.", w.policy.document.Policy.Mode)
}

// appliedNow reports whether the agent confirmed exactly this policy for this generation
// of the spec, or for a later one that this reconcile has not read.
func appliedNow(w *world) bool {
	a := w.observation.Observed.Applied
	return a != nil && a.Digest == w.policy.document.Digest && confirms(a.Stamp, w.policy.stamp)
}

func confirms(have, want policy.Stamp) bool {
	return have.SessionUID == want.SessionUID && have.SessionGeneration >= want.SessionGeneration
}

func activeOf(w *world, completed, suspended, runner verdict) verdict {
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case suspended.is():
		return no(v1alpha1.ReasonSuspended, "The session is suspended.")
	case w.unheard():
		return w.before(v1alpha1.ConditionActive, no(v1alpha1.ReasonPaused, "Nothing starts before the runner is ready."))
	case w.observation.Observed == nil || w.observation.Unreachable || !w.podUp():
		return no(v1alpha1.ReasonPaused, "Nothing starts before the runner is ready.")
	}
	switch w.observation.Observed.Activity.State {
	case wire.InTurn, wire.WaitingForApproval:
		return yes(v1alpha1.ReasonInTurn, "A turn is running.")
	case wire.Idle:
		if p := w.problem(wire.ModelUnavailable); p != nil {
			return no(string(p.Reason), "%s", message(p))
		}
		return no(v1alpha1.ReasonWaitingForInput, "Every message is answered. Create a SessionMessage to go on.")
	case wire.Paused:
	}
	if !runner.is() {
		return no(v1alpha1.ReasonPaused, "Nothing starts before the runner is ready.")
	}
	return no(v1alpha1.ReasonPaused, "Nothing starts before the policy is enforced.")
}

// waitingForApprovalOf tells of a call that waits for a person. What it says of the call comes
// from the agent.
func waitingForApprovalOf(w *world, completed, suspended verdict) verdict {
	none := no(v1alpha1.ReasonNonePending, "No tool call waits for a person.")
	o := w.observation.Observed
	switch {
	case completed.is():
		return no(completed.reason, "The session is finished.")
	case suspended.is():
		return no(v1alpha1.ReasonSuspended, "The session is suspended. A call that waits goes on waiting when it is resumed, if its time is not over by then.")
	case w.unheard():
		return w.before(v1alpha1.ConditionWaitingForApproval, none)
	case o == nil || !w.podUp() || len(o.Approvals) == 0:
		return none
	}
	a := o.Approvals[0]
	return yes(v1alpha1.ReasonApprovalPending,
		"A call of %s asks to run once under %s. Nobody can decide on the cluster yet: it ends as denied when approval.timeoutSeconds are over, or at once when the mode or the approval policy changes.",
		cutLine(a.Tool, 64), a.Mode)
}

func readyOf(w *world, completed, accepted, suspended, runner, enforced, mode verdict) verdict {
	if completed.reason == v1alpha1.ReasonSucceeded {
		return completed
	}
	if completed.is() {
		return no(completed.reason, "%s", completed.message)
	}
	if !accepted.is() || suspended.reason == v1alpha1.ReasonStorageNotPersistent {
		return firstNot(accepted, suspended)
	}
	if suspended.is() {
		return yes(v1alpha1.ReasonSuspended, "%s", suspended.message)
	}
	if v := firstNot(runner, enforced, mode); !v.is() {
		return v
	}
	if p := w.problem(wire.ModelUnavailable); p != nil {
		return no(string(p.Reason), "%s", message(p))
	}
	running := yes(v1alpha1.ReasonRunning, "The session runs in mode %s.", w.policy.document.Policy.Mode)
	if c := meta.FindStatusCondition(w.session.Status.Conditions, v1alpha1.ConditionReady); c != nil && w.unheard() && c.Reason == v1alpha1.ReasonModelUnavailable {
		return w.before(v1alpha1.ConditionReady, running)
	}
	return running
}

// notEnforced are the reasons of Enforced=False for which no tool runs.
var notEnforced = map[string]bool{
	v1alpha1.ReasonLandlockUnavailable: true,
	v1alpha1.ReasonProbeFailed:         true,
	v1alpha1.ReasonBelowMinimum:        true,
}

// firstNot is the first verdict that is not as wanted, else the last.
func firstNot(list ...verdict) (v verdict) {
	for _, v = range list {
		if !v.is() {
			return v
		}
	}
	return v
}

// needsSomebody are the reasons that no waiting resolves.
var needsSomebody = map[string]bool{
	v1alpha1.ReasonNameTaken:            true,
	v1alpha1.ReasonStorageNotPersistent: true,
	v1alpha1.ReasonPodRejected:          true,
	v1alpha1.ReasonAuthorityUnknown:     true,
	v1alpha1.ReasonSourceFailed:         true,
	v1alpha1.ReasonModelKeyMissing:      true,
	v1alpha1.ReasonLogRolledBack:        true,
	v1alpha1.ReasonLandlockUnavailable:  true,
	v1alpha1.ReasonProbeFailed:          true,
	v1alpha1.ReasonBelowMinimum:         true,
}

func stalledOf(completed, accepted, suspended, runner, enforced verdict) verdict {
	if completed.reason == v1alpha1.ReasonSucceeded {
		return no(v1alpha1.ReasonNone, "The session is finished.")
	}
	if completed.is() {
		return yes(completed.reason, "%s", completed.message)
	}
	if !accepted.is() {
		return yes(accepted.reason, "%s", accepted.message)
	}
	for _, v := range []verdict{suspended, runner, enforced} {
		if needsSomebody[v.reason] {
			return yes(v.reason, "%s", v.message)
		}
	}
	return no(v1alpha1.ReasonNone, "Nobody needs to act.")
}
