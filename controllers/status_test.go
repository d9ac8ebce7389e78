// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// settled is the world of a session that runs in workspace-write, generation 2.
func settled() *world {
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "fix-build", UID: "s-1", Generation: 2, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	s.Spec.Sandbox = v1alpha1.Sandbox{Mode: v1alpha1.ModeWorkspaceWrite, Network: v1alpha1.NetworkNone}
	s.Spec.Approval.Policy = v1alpha1.ApprovalNever
	s.Status.StartTime = new(metav1.NewTime(noon.Add(-time.Hour)))
	class := &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: "standard", UID: "c-1", Generation: 1}}
	class.Spec.Ceiling = v1alpha1.Ceiling{MaxMode: v1alpha1.ModeDangerFullAccess}
	class.Spec.Model.DefaultName = "deepseek-chat"
	w := &world{now: noon, session: s, class: class, namespace: namespaceObject("ns"), pod: builtPod(s, class)}
	w.namespace.UID, w.namespace.ResourceVersion = "n-1", "7"
	w.resolve()
	full := wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7, Layers: []string{"landlock", "seccomp"}}
	w.observation.Observed = &wire.Observed{
		Activity:   wire.Activity{State: wire.Idle},
		Containers: []wire.Container{{Name: wire.ToolsRO, Connected: true, Report: full}, {Name: wire.ToolsRW, Connected: true, Report: full}},
		Applied:    &wire.Applied{Digest: w.policy.document.Digest, Stamp: w.policy.stamp, Seq: 8, SnapshotSeq: 9, Killed: 1, Time: noon},
		Log:        wire.LogHead{Seq: 9, Digest: "aa"},
		Usage:      wire.Usage{Input: 100, CachedInput: 300, Output: 50},
	}
	return w
}

// asks has a call of the session wait for a person.
func (w *world) asks() {
	w.observation.Observed.Activity.State = wire.WaitingForApproval
	w.observation.Observed.Approvals = []wire.Approval{{CallID: "1.2.1", Tool: "bash", Mode: policy.DangerFullAccess}}
}

// persist gives the session a volume that stays, and a pod on it.
func (w *world) persist() {
	w.class.Spec.Storage = &v1alpha1.ClassStorage{Storage: v1alpha1.Storage{Type: v1alpha1.StoragePersistentVolumeClaim}}
	w.session.Status.Storage = &v1alpha1.StorageStatus{Type: v1alpha1.StoragePersistentVolumeClaim, ClaimName: podspec.ClaimName(w.session)}
	w.pod = builtPod(w.session, w.class)
	w.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: podspec.ClaimName(w.session)}}
}

// builtPod is the pod as podspec builds it, with all its containers running.
func builtPod(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) *corev1.Pod {
	p, err := podspec.Typed[corev1.Pod](podspec.Pod(podspec.Input{Session: s, Class: class, AgentImage: "agent:1", Incarnation: "i-1", CAHash: "00"}))
	if err != nil {
		panic(err)
	}
	p.UID, p.Spec.NodeName, p.CreationTimestamp = "p-1", "node-1", s.CreationTimestamp
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.9",
		InitContainerStatuses: []corev1.ContainerStatus{{Name: podspec.AgentContainer, State: running()}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: wire.ToolsRO, State: running()}, {Name: wire.ToolsRW, State: running()}},
	}
	return p
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func TestConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   []string // condition=status/reason, of those that matter
		says   string   // part of Ready's message
	}{
		"all is well": {
			func(*world) {},
			[]string{"Ready=True/Running", "Accepted=True/Accepted", "RunnerReady=True/RunnerReady", "Enforced=True/Enforced",
				"ModeApplied=True/Applied", "Active=False/WaitingForInput", "Completed=False/Running", "Stalled=False/None"},
			"workspace-write",
		},
		"a new generation waits for the agent although the policy is the same": {
			func(w *world) { w.session.Generation = 3; w.resolve() },
			[]string{"Ready=False/Pending", "ModeApplied=False/Pending", "RunnerReady=True/RunnerReady"}, "",
		},
		"a later generation that the agent confirmed counts": {
			func(w *world) { w.observation.Observed.Applied.Stamp.SessionGeneration = 5 },
			[]string{"ModeApplied=True/Applied"}, "",
		},
		"another session's stamp counts for nothing": {
			func(w *world) { w.observation.Observed.Applied.Stamp.SessionUID = "s-0" },
			[]string{"ModeApplied=False/Pending"}, "",
		},
		"a container that has not confirmed drains": {
			func(w *world) { w.observation.Observed.Unconfirmed = []string{wire.ToolsRW} },
			[]string{"Ready=False/Draining", "ModeApplied=False/Draining"}, "",
		},
		"before the first policy nothing runs that could drain": {
			func(w *world) {
				w.observation.Observed.Applied, w.observation.Observed.Unconfirmed = nil, []string{wire.ToolsRO, wire.ToolsRW}
			},
			[]string{"Ready=False/Pending", "ModeApplied=False/Pending"}, "",
		},
		"a clamped mode is applied and says what was asked": {
			func(w *world) {
				w.class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
				w.resolve()
				w.observation.Observed.Applied.Digest = w.policy.document.Digest
			},
			[]string{"Ready=True/Running", "ModeApplied=True/Clamped"}, "read-only",
		},
		"an agent with a newer policy": {
			func(w *world) { w.observation.Refused = &policy.Stamp{} },
			[]string{"ModeApplied=False/PolicyOlder"}, "",
		},
		"a missing class": {
			func(w *world) {
				w.class, w.noClass = nil, refuse(v1alpha1.ReasonClassNotFound, "it does not exist")
				w.resolve()
			},
			[]string{"Ready=False/ClassNotFound", "Accepted=False/ClassNotFound", "ModeApplied=False/NotAccepted", "Stalled=True/ClassNotFound"}, "does not exist",
		},
		"no pod yet": {
			func(w *world) { w.pod, w.session.Status.StartTime, w.observation = nil, nil, link.Observation{} },
			[]string{"Ready=False/PodPending", "Enforced=False/AwaitingProbe", "ModeApplied=False/Pending", "Stalled=False/None"}, "",
		},
		"a refused pod": {
			func(w *world) {
				w.pod, w.session.Status.StartTime, w.observation = nil, nil, link.Observation{}
				w.podRefused = refuse(v1alpha1.ReasonPodRejected, "exceeded quota")
			},
			[]string{"Ready=False/PodRejected", "Stalled=True/PodRejected"}, "exceeded quota",
		},
		"a foreign pod with our name": {
			func(w *world) {
				w.pod, w.foreign, w.session.Status.StartTime = nil, true, nil
				w.observation = link.Observation{}
			},
			[]string{"Ready=False/NameTaken", "Stalled=True/NameTaken", "Completed=False/Running"}, "neither used nor removed: delete it",
		},
		"the pod was deleted": {
			func(w *world) { w.pod = nil },
			[]string{"Ready=False/StateLost", "Completed=True/StateLost", "RunnerReady=False/StateLost", "Stalled=True/StateLost", "Active=False/StateLost"}, "Create a new session",
		},
		"the pod was evicted": {
			func(w *world) { w.pod.Status.Phase, w.pod.Status.Reason = corev1.PodFailed, "Evicted" },
			[]string{"Completed=True/StateLost"}, "Evicted",
		},
		"the agent found no log": {
			func(w *world) {
				w.observation.Observed.Problems = []wire.Problem{{Reason: wire.StateLost, Message: "the log is empty"}}
			},
			[]string{"Completed=True/StateLost"}, "the log is empty",
		},
		"the pod goes away": {
			func(w *world) { w.pod.DeletionTimestamp = new(metav1.NewTime(noon)) },
			[]string{"Ready=False/PodTerminating", "RunnerReady=False/PodTerminating", "ModeApplied=False/Pending", "Completed=False/Running"}, "",
		},
		"a pod with a volume of its own is lost": {
			func(w *world) { w.persist(); w.pod, w.observation = nil, link.Observation{} },
			[]string{"Ready=False/PodPending", "Completed=False/Running", "Suspended=False/NotRequested", "ModeApplied=False/Pending"}, "",
		},
		"a pod with a volume of its own is evicted": {
			func(w *world) { w.persist(); w.pod.Status.Phase, w.pod.Status.Reason = corev1.PodFailed, "Evicted" },
			[]string{"Ready=False/ContainerFailed", "Completed=False/Running"}, "replaced",
		},
		"the volume claim was deleted": {
			func(w *world) { w.persist(); w.claim = nil },
			[]string{"Ready=False/StateLost", "Completed=True/StateLost", "Suspended=False/StateLost"}, "fix-build-",
		},
		"another claim has taken its name": {
			func(w *world) { w.persist(); w.claim, w.foreignClaim = nil, true },
			[]string{"Completed=True/StateLost"}, "another one has its name",
		},
		"the volume claim is being deleted": {
			func(w *world) {
				w.persist()
				w.pod, w.observation, w.claim.DeletionTimestamp = nil, link.Observation{}, new(metav1.NewTime(noon))
			},
			[]string{"Ready=False/PodPending", "Completed=False/Running"}, "is being deleted",
		},
		"suspended": {
			func(w *world) {
				w.persist()
				w.session.Spec.Suspend = true
				w.pod, w.observation = nil, link.Observation{}
			},
			[]string{"Ready=True/Suspended", "Suspended=True/Suspended", "Accepted=True/Accepted", "RunnerReady=False/Suspended", "Enforced=False/Suspended",
				"ModeApplied=False/Suspended", "Active=False/Suspended", "Completed=False/Running", "Stalled=False/None"}, "state is kept",
		},
		"on its way to be suspended": {
			func(w *world) {
				w.persist()
				w.session.Spec.Suspend = true
				w.pod.DeletionTimestamp = new(metav1.NewTime(noon))
			},
			[]string{"Ready=False/PodTerminating", "Suspended=False/PodTerminating"}, "",
		},
		"suspended without a volume that stays": {
			func(w *world) { w.session.Spec.Suspend = true },
			[]string{"Ready=False/StorageNotPersistent", "Suspended=False/StorageNotPersistent", "Stalled=True/StorageNotPersistent", "ModeApplied=True/Applied"}, "EmptyDir",
		},
		"suspended before it started": {
			func(w *world) {
				w.session.Spec.Suspend, w.session.Status.StartTime = true, nil
				w.pod, w.observation = nil, link.Observation{}
			},
			[]string{"Ready=True/Suspended", "Suspended=True/Suspended"}, "",
		},
		"suspended under a class that is gone": {
			func(w *world) {
				w.persist()
				w.session.Spec.Suspend = true
				w.pod, w.observation, w.class, w.noClass = nil, link.Observation{}, nil, refuse(v1alpha1.ReasonClassNotFound, "it does not exist")
				w.resolve()
			},
			[]string{"Ready=False/ClassNotFound", "Suspended=True/Suspended"}, "",
		},
		"an older copy of the volume was put back": {
			func(w *world) {
				w.persist()
				w.observation.Observed.Problems = []wire.Problem{{Reason: wire.LogRolledBack, Message: "the log ends at event 5"}}
			},
			[]string{"Ready=False/LogRolledBack", "RunnerReady=False/LogRolledBack", "Stalled=True/LogRolledBack", "Completed=False/Running"}, "event 5",
		},
		"the pod is of an older class": {
			func(w *world) { w.inputs = "other" },
			[]string{"Ready=True/Running", "Outdated=True/InputsChanged", "Stalled=False/None"}, "",
		},
		"the pod is of today's class": {
			func(w *world) { w.inputs = w.pod.Annotations[podspec.AnnotationInputs] },
			[]string{"Outdated=False/Current"}, "",
		},
		"an image cannot be pulled": {
			func(w *world) {
				w.pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: wire.ToolsRO, Image: "tools:x",
					State: waiting("ImagePullBackOff", `Back-off pulling image "tools:x": ErrImagePull: not found`)}
			},
			[]string{"Ready=False/ImagePullFailed", "Stalled=False/None"}, `"tools:x" of container tools-ro cannot be pulled: not found`,
		},
		"a container keeps ending": {
			func(w *world) {
				w.pod.Status.InitContainerStatuses[0] = corev1.ContainerStatus{Name: "agent", State: waiting("CrashLoopBackOff", "back-off 40s"),
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}
			},
			[]string{"RunnerReady=False/ContainerFailed"}, "exit code 3",
		},
		"the pod fits on no node": {
			func(w *world) {
				w.pod.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}}
				w.session.Status.StartTime, w.observation = nil, link.Observation{}
			},
			[]string{"RunnerReady=False/PodPending"}, "0/1 nodes",
		},
		"the agent does not answer": {
			func(w *world) { w.observation.Unreachable, w.observation.Trouble = true, "no answer in time" },
			[]string{"Ready=False/RunnerUnreachable", "ModeApplied=False/RunnerUnreachable", "Active=False/Paused"}, "no answer in time",
		},
		"the node does not report either": {
			func(w *world) {
				w.observation.Unreachable = true
				w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
			},
			[]string{"RunnerReady=False/NodeLost"}, "node-1",
		},
		"the model's key is missing": {
			func(w *world) {
				w.observation.Observed.Problems = []wire.Problem{{Reason: wire.ModelKeyMissing, Message: "no key in Secret deepseek"}}
			},
			[]string{"Ready=False/ModelKeyMissing", "RunnerReady=False/ModelKeyMissing", "Stalled=True/ModelKeyMissing"}, "deepseek",
		},
		"the model does not answer": {
			func(w *world) {
				w.observation.Observed.Problems = []wire.Problem{{Reason: wire.ModelUnavailable, Message: "connection refused"}}
			},
			[]string{"Ready=False/ModelUnavailable", "RunnerReady=True/RunnerReady", "ModeApplied=True/Applied", "Active=False/ModelUnavailable", "Stalled=False/None"}, "connection refused",
		},
		"a tools container is away": {
			func(w *world) {
				w.observation.Observed.Containers[1].Connected = false
				w.observation.Observed.Problems = []wire.Problem{{Reason: wire.ToolsUnreachable, Message: "tools-rw is away"}}
			},
			[]string{"Ready=False/ToolsUnreachable", "Enforced=False/AwaitingProbe"}, "tools-rw",
		},
		"the kernel cannot enforce": {
			func(w *world) {
				w.observation.Observed.Containers[1].Report = wire.Enforcement{Level: wire.LevelMount}
			},
			[]string{"Ready=False/LandlockUnavailable", "Enforced=False/LandlockUnavailable", "ModeApplied=False/NotEnforced", "Stalled=True/LandlockUnavailable"}, "",
		},
		"the kernel has no scopes, and the class does not demand them": {
			func(w *world) {
				w.observation.Observed.Containers[1].Report = wire.Enforcement{Level: wire.LevelFiles, LandlockABI: 5}
			},
			[]string{"Enforced=True/Enforced", "ModeApplied=True/Applied", "Ready=True/Running"}, "",
		},
		"the kernel has less than the class demands": {
			func(w *world) {
				w.class.Spec.Enforcement.Minimum = v1alpha1.MinimumFull
				w.observation.Observed.Containers[1].Report = wire.Enforcement{Level: wire.LevelFiles, LandlockABI: 5}
			},
			[]string{"Ready=False/BelowMinimum", "Enforced=False/BelowMinimum", "ModeApplied=False/NotEnforced", "Stalled=True/BelowMinimum"}, "demands Full",
		},
		"a level that nobody knows": {
			func(w *world) {
				w.class.Spec.Enforcement.Minimum = v1alpha1.MinimumMount
				w.observation.Observed.Containers[1].Report = wire.Enforcement{Level: "Total", LandlockABI: 9}
			},
			[]string{"Ready=False/LandlockUnavailable", "Enforced=False/LandlockUnavailable", "ModeApplied=False/NotEnforced"}, "",
		},
		"a call waits for a person": {
			func(w *world) { w.asks() },
			[]string{"Ready=True/Running", "Active=True/InTurn", "WaitingForApproval=True/ApprovalPending", "Stalled=False/None"}, "",
		},
		"a call waited for a person when the controller started anew": {
			func(w *world) {
				w.asks()
				w.session.Status = statusOf(w)
				w.observation = link.Observation{}
			},
			[]string{"WaitingForApproval=True/ApprovalPending", "Active=True/InTurn"}, "",
		},
		"no call waits": {
			func(*world) {},
			[]string{"WaitingForApproval=False/NonePending"}, "",
		},
		"a call waits in a session that is suspended": {
			func(w *world) {
				w.persist()
				w.asks()
				w.session.Status = statusOf(w)
				w.session.Spec.Suspend = true
				w.pod, w.observation = nil, link.Observation{}
			},
			[]string{"WaitingForApproval=False/Suspended", "Suspended=True/Suspended"}, "",
		},
		"a controller that has just started believes the last one for a while": {
			func(w *world) {
				w.session.Status = statusOf(w)
				w.observation = link.Observation{Trouble: "dial: no answer in time"}
			},
			[]string{"Ready=True/Running", "RunnerReady=True/RunnerReady", "Enforced=True/Enforced", "ModeApplied=True/Applied", "Active=False/WaitingForInput"}, "",
		},
		"but not about a new generation": {
			func(w *world) {
				w.session.Status = statusOf(w)
				w.session.Generation, w.observation = 3, link.Observation{}
				w.resolve()
			},
			[]string{"Ready=False/Pending", "RunnerReady=True/RunnerReady", "ModeApplied=False/Pending"}, "",
		},
		"nor for longer than 30 seconds": {
			func(w *world) {
				w.session.Status = statusOf(w)
				w.observation = link.Observation{Trouble: "dial: no answer in time", Unreachable: true}
			},
			[]string{"Ready=False/RunnerUnreachable", "ModeApplied=False/RunnerUnreachable"}, "no answer in time",
		},
		"a turn runs": {
			func(w *world) { w.observation.Observed.Activity.State = wire.InTurn },
			[]string{"Ready=True/Running", "Active=True/InTurn"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled()
			tc.change(w)
			status := statusOf(w)
			var got []string
			for _, c := range tc.want {
				kind, _, _ := strings.Cut(c, "=")
				if f := meta.FindStatusCondition(status.Conditions, kind); f != nil {
					got = append(got, kind+"="+string(f.Status)+"/"+f.Reason)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, tc.says) {
				t.Errorf("Ready says %q, want %q in it", ready.Message, tc.says)
			}
			checkStatus(t, w, status)
		})
	}
}

// checkStatus holds of every status, whatever the world.
func checkStatus(t *testing.T, w *world, status v1alpha1.AgentSessionStatus) {
	t.Helper()
	if status.ObservedGeneration != w.session.Generation || len(status.Conditions) != 11 {
		t.Errorf("observedGeneration %d, %d conditions", status.ObservedGeneration, len(status.Conditions))
	}
	for _, c := range status.Conditions {
		if c.ObservedGeneration != w.session.Generation || c.Reason == "" || c.Message == "" || len(c.Message) > 4096 || c.LastTransitionTime.IsZero() {
			t.Errorf("condition is not whole: %+v", c)
		}
	}
	completed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCompleted)
	succeeded := completed.Status == metav1.ConditionTrue && completed.Reason == v1alpha1.ReasonSucceeded
	if completed.Status == metav1.ConditionTrue && (isTrue(status.Conditions, v1alpha1.ConditionRunnerReady) || isTrue(status.Conditions, v1alpha1.ConditionReady) != succeeded) {
		t.Error("completed and ready at once")
	}
	suspended := isTrue(status.Conditions, v1alpha1.ConditionSuspended)
	if suspended && w.pod != nil {
		t.Error("suspended with a pod")
	}
	if isTrue(status.Conditions, v1alpha1.ConditionReady) && !suspended && !succeeded && !isTrue(status.Conditions, v1alpha1.ConditionModeApplied) {
		t.Error("ready although the mode is not applied")
	}
	if diff := cmp.Diff(status, statusOf(w)); diff != "" {
		t.Errorf("the same world gives two statuses:\n%s", diff)
	}
	// Written and read again, the status must stay: else each write causes the next.
	again := *w
	again.session = w.session.DeepCopy()
	again.session.Status = status
	again.now = w.now.Add(time.Hour)
	if next := statusOf(&again); compare(status, next) != unchanged && w.started() == again.started() {
		t.Errorf("an unchanged world changes the status:\n%s", cmp.Diff(status, next))
	}
}

func TestObservedFields(t *testing.T) {
	got := statusOf(settled())
	if diff := cmp.Diff(&v1alpha1.UsageStatus{InputTokens: 100, CachedInputTokens: 300, OutputTokens: 50, TotalTokens: 450, CachedPercent: 75}, got.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	want := &v1alpha1.AppliedStatus{Mode: "workspace-write", Network: "none", Approval: "never", Digest: got.Policy.Digest, Generation: 2,
		Time: metav1.NewTime(noon), SnapshotSeq: 9, KilledProcesses: 1}
	if diff := cmp.Diff(want, got.Applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if got.Enforcement.Level != v1alpha1.EnforcementFull || got.NodeName != "node-1" || got.Model != "deepseek-chat" || got.ClassName != "standard" {
		t.Errorf("status %+v", got)
	}
}

func TestADigestOfNoPolicyIsNotBelieved(t *testing.T) {
	w := settled()
	w.observation.Observed.Applied.Digest = "made-up"
	if got := statusOf(w); got.Applied != nil || isTrue(got.Conditions, v1alpha1.ConditionModeApplied) {
		t.Errorf("applied %+v", got.Applied)
	}
}

func TestTheNodeIsNoWriteOfItsOwn(t *testing.T) {
	before := v1alpha1.AgentSessionStatus{PodName: "p"}
	after := v1alpha1.AgentSessionStatus{PodName: "p", NodeName: "node-1"}
	if got := compare(before, after); got != countersOnly {
		t.Errorf("compare() = %d, want it to wait for the next write", got)
	}
	after.PodName = "q"
	if got := compare(before, after); got != changedMore {
		t.Errorf("compare() = %d with another pod, want a write", got)
	}
}

func TestTheFirstWordOfAnAgentIsNoWriteOfItsOwn(t *testing.T) {
	before := v1alpha1.AgentSessionStatus{PodName: "p"}
	after := v1alpha1.AgentSessionStatus{
		PodName: "p", Activity: &v1alpha1.ActivityStatus{State: v1alpha1.ActivityPaused},
		Usage: &v1alpha1.UsageStatus{}, Log: &v1alpha1.LogStatus{LastSeq: 2},
	}
	if got := compare(before, after); got != countersOnly {
		t.Errorf("compare() = %d, want it to wait for the next write", got)
	}
	after.Activity.State = v1alpha1.ActivityIdle
	if got := compare(before, after); got != changedMore {
		t.Errorf("compare() = %d of an agent that waits for work, want a write", got)
	}
}

func TestCompareTellsCountersFromTheRest(t *testing.T) {
	w := settled()
	before := statusOf(w)
	w.observation.Observed.Usage.Output++
	w.observation.Observed.Log.Seq++
	w.observation.Observed.Activity.Steps++
	if got := compare(before, statusOf(w)); got != countersOnly {
		t.Errorf("compare() = %d, want counters only", got)
	}
	w.observation.Observed.Activity.State = wire.InTurn
	if got := compare(before, statusOf(w)); got != changedMore {
		t.Errorf("compare() = %d, want more", got)
	}
}

// A call that waits is worth a write and an event of its own; when it is over, nothing is left of it.
func TestPendingApprovalsAreTold(t *testing.T) {
	w := settled()
	before := statusOf(w)
	w.asks()
	after := statusOf(w)
	if a := after.Activity; a.State != v1alpha1.ActivityWaitingForApproval || a.PendingApprovals != 1 || compare(before, after) != changedMore {
		t.Errorf("activity = %+v, change %v", a, compare(before, after))
	}
	c := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionWaitingForApproval)
	if !strings.Contains(c.Message, "A call of bash asks to run once under danger-full-access.") {
		t.Errorf("message = %q", c.Message)
	}
	want := []note{{corev1.EventTypeNormal, v1alpha1.ConditionWaitingForApproval, "Observe", c.Message}}
	if diff := cmp.Diff(want, notesOn(&before, &after), cmp.AllowUnexported(note{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.session.Status = after
	if again := notesOn(&after, new(statusOf(w))); len(again) != 0 {
		t.Errorf("told again: %+v", again)
	}
	w.observation.Observed.Approvals = nil
	w.observation.Observed.Activity.State = wire.InTurn
	if done := statusOf(w); done.Activity.PendingApprovals != 0 || len(notesOn(&after, &done)) != 0 {
		t.Errorf("activity = %+v, events %+v", done.Activity, notesOn(&after, &done))
	}
	w.asks()
	w.session.Status = statusOf(w)
	w.persist()
	w.session.Spec.Suspend = true
	w.pod, w.observation = nil, link.Observation{}
	if s := statusOf(w); s.Activity.PendingApprovals != 0 {
		t.Errorf("a suspended session has %d calls that wait", s.Activity.PendingApprovals)
	}
}

// Whoever is not told otherwise may be asked, as far as class and spec say so.
func TestTheCeilingOfApproval(t *testing.T) {
	for _, tc := range []struct{ spec, ceiling, want v1alpha1.ApprovalPolicy }{
		{v1alpha1.ApprovalAsk, "", v1alpha1.ApprovalAsk},
		{v1alpha1.ApprovalAsk, v1alpha1.ApprovalAsk, v1alpha1.ApprovalAsk},
		{v1alpha1.ApprovalAsk, v1alpha1.ApprovalNever, v1alpha1.ApprovalNever},
		{v1alpha1.ApprovalNever, v1alpha1.ApprovalAsk, v1alpha1.ApprovalNever},
		{"", "", v1alpha1.ApprovalNever},
	} {
		w := settled()
		w.session.Spec.Approval = v1alpha1.Approval{Policy: tc.spec, TimeoutSeconds: 60}
		w.class.Spec.Ceiling.MaxApproval = tc.ceiling
		w.resolve()
		s := statusOf(w)
		var clamped []v1alpha1.Clamp
		if tc.spec == v1alpha1.ApprovalAsk && tc.want == v1alpha1.ApprovalNever {
			clamped = []v1alpha1.Clamp{{Field: "approval", Requested: "ask", By: v1alpha1.ClampedByClass}}
		}
		if diff := cmp.Diff(clamped, s.Policy.Clamped); diff != "" || s.Policy.Approval != tc.want {
			t.Errorf("spec %q, class %q: %s, clamped (-want +got):\n%s", tc.spec, tc.ceiling, s.Policy.Approval, diff)
		}
		if d := desiredOf(w, nil); d.Config.ApprovalTimeoutSeconds != 60 {
			t.Errorf("the agent is told %d s", d.Config.ApprovalTimeoutSeconds)
		}
	}
}
