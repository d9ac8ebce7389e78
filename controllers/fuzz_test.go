// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// TestAnyWorld draws worlds that need not make sense: no phase panics, and every
// status is whole, the same each time, settled, and never both finished and ready.
func TestAnyWorld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		status := statusOf(w)
		checkStatus(t, w, status)
		notesOn(&w.session.Status, &status)
		planPod(w)
		for i := range w.messages {
			messageStatus(w, &w.messages[i])
		}
		if w.pod != nil && w.policy != nil {
			endpointOf(w)
			desiredOf(w, w.observation.Refused)
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func drawWorld(t *rapid.T) *world {
	flip := func(label string) bool { return rapid.Bool().Draw(t, label) }
	w := settled()
	modes := rapid.SampledFrom([]v1alpha1.SandboxMode{"", v1alpha1.ModeReadOnly, v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeDangerFullAccess, "unknown"})
	w.session.Spec.Sandbox.Mode = modes.Draw(t, "mode")
	w.class.Spec.Ceiling.MaxMode = modes.Draw(t, "ceiling")
	w.class.Spec.Ceiling.OnExceed = rapid.SampledFrom([]v1alpha1.OnExceed{"", v1alpha1.OnExceedClamp, v1alpha1.OnExceedReject}).Draw(t, "onExceed")
	if flip("model") {
		w.session.Spec.Model = &v1alpha1.ModelChoice{Name: "other"}
	}
	if flip("had a status") {
		w.session.Status = statusOf(settled())
	}
	if flip("persistent") {
		w.persist()
	}
	w.session.Spec.Suspend = flip("suspend")
	if flip("outdated") {
		w.inputs = "other"
	}
	w.session.Generation = rapid.Int64Range(1, 4).Draw(t, "generation")
	if flip("not started") {
		w.session.Status.StartTime = nil
	}
	w.pod, w.foreign = drawPod(t, w), flip("foreign")
	if w.foreign {
		w.pod = nil
	}
	if w.claim != nil && flip("claim going") {
		w.claim.DeletionTimestamp = new(metav1.NewTime(noon))
	}
	if w.foreignClaim = flip("foreign claim"); w.foreignClaim || flip("no claim") {
		w.claim = nil
	}
	if flip("no class") {
		w.class, w.noClass = nil, refuse(v1alpha1.ReasonClassNotFound, "none")
	}
	if flip("pod refused") {
		w.podRefused = refuse(v1alpha1.ReasonPodRejected, "quota")
	}
	if flip("labelled") {
		w.namespace.Labels = map[string]string{v1alpha1.MaxModeLabel: rapid.SampledFrom([]string{"", "read-only", "workspace-write", "made-up"}).Draw(t, "label")}
	}
	w.resolve()
	w.observation = drawObservation(t)
	for range rapid.IntRange(0, 3).Draw(t, "messages") {
		m := v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{UID: "m-1", CreationTimestamp: metav1.NewTime(noon)}}
		m.Spec.Content = rapid.String().Draw(t, "content")
		w.messages = append(w.messages, m)
	}
	return w
}

func drawPod(t *rapid.T, w *world) *corev1.Pod {
	if rapid.Bool().Draw(t, "no pod") {
		return nil
	}
	p := builtPod(w.session, w.class)
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown}).Draw(t, "phase")
	p.Status.PodIP = rapid.SampledFrom([]string{"", "10.0.0.9"}).Draw(t, "ip")
	p.Status.Reason = rapid.SampledFrom([]string{"", "Evicted", "NodeLost", "\x00\xff"}).Draw(t, "reason")
	if rapid.Bool().Draw(t, "terminating") {
		p.DeletionTimestamp = new(metav1.NewTime(noon.Add(-time.Second)))
	}
	states := rapid.SampledFrom([]corev1.ContainerState{{}, running(), waiting("ContainerCreating", ""), waiting("ErrImagePull", ""),
		waiting("ImagePullBackOff", "Back-off pulling"), waiting("CrashLoopBackOff", "x"), waiting("CreateContainerError", "\n")})
	p.Status.InitContainerStatuses[0].State = states.Draw(t, "agent")
	p.Status.ContainerStatuses[0].State = states.Draw(t, "tools-ro")
	if rapid.Bool().Draw(t, "bare") {
		p.Spec.InitContainers, p.Status.ContainerStatuses = nil, nil
	}
	return p
}

func drawObservation(t *rapid.T) link.Observation {
	o := link.Observation{Unreachable: rapid.Bool().Draw(t, "unreachable"), Trouble: rapid.String().Draw(t, "trouble")}
	if rapid.Bool().Draw(t, "refused") {
		o.Refused = &policy.Stamp{}
	}
	if rapid.Bool().Draw(t, "never answered") {
		return o
	}
	o.Observed = settled().observation.Observed
	o.Observed.Activity.State = rapid.SampledFrom([]wire.State{"", wire.Idle, wire.InTurn, wire.Paused, wire.WaitingForApproval, "made-up"}).Draw(t, "state")
	for range rapid.IntRange(0, 2).Draw(t, "approvals") {
		o.Observed.Approvals = append(o.Observed.Approvals, wire.Approval{CallID: "1.1.1", Tool: "bash\n", Mode: policy.WorkspaceWrite})
	}
	o.Observed.Containers = o.Observed.Containers[:rapid.IntRange(0, 2).Draw(t, "containers")]
	for i := range o.Observed.Containers {
		o.Observed.Containers[i].Connected = rapid.Bool().Draw(t, "connected")
		o.Observed.Containers[i].Report.Level = rapid.SampledFrom([]wire.Level{"", wire.LevelFull, wire.LevelFiles, wire.LevelMount, wire.LevelNone, "made-up"}).Draw(t, "level")
	}
	for range rapid.IntRange(0, 3).Draw(t, "problems") {
		o.Observed.Problems = append(o.Observed.Problems, wire.Problem{
			Reason: rapid.SampledFrom([]wire.ProblemReason{wire.LogUnwritable, wire.StateLost, wire.ModelKeyMissing, wire.ModelUnavailable,
				wire.ToolsUnreachable, wire.LandlockUnavailable, wire.ProbeFailed, "made-up"}).Draw(t, "problem"),
			Message: rapid.String().Draw(t, "message"),
		})
	}
	switch rapid.IntRange(0, 2).Draw(t, "applied") {
	case 0:
		o.Observed.Applied = nil
	case 1:
		o.Observed.Applied = &wire.Applied{Digest: policy.Digest(rapid.String().Draw(t, "digest")), Stamp: policy.Stamp{SessionUID: "s-1"}}
	}
	if rapid.Bool().Draw(t, "draining") {
		o.Observed.Unconfirmed = []string{"x"}
	}
	o.Observed.Messages = []wire.MessageStatus{{UID: "m-1", State: rapid.SampledFrom([]wire.MessageState{wire.Delivered, wire.Answered, "made-up"}).Draw(t, "message state")}}
	return o
}
