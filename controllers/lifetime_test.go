// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// idle is a session on a volume that started an hour ago and has been idle for ten minutes.
func idle() *world {
	w := settled()
	w.persist()
	w.session.Status = statusOf(w)
	w.session.Status.Activity.IdleSince = new(metav1.NewTime(noon.Add(-10 * time.Minute)))
	setCondition(w, v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonNotRequested, noon.Add(-time.Hour))
	return w
}

func setCondition(w *world, t string, status metav1.ConditionStatus, reason string, at time.Time) {
	meta.RemoveStatusCondition(&w.session.Status.Conditions, t)
	meta.SetStatusCondition(&w.session.Status.Conditions, metav1.Condition{Type: t, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
}

func complete(w *world, ago time.Duration) {
	setCondition(w, v1alpha1.ConditionCompleted, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, noon.Add(-ago))
	w.session.Status.CompletionTime = new(metav1.NewTime(noon.Add(-ago)))
}

func policyOf(suspend, remove int64) *v1alpha1.IdlePolicy {
	p := &v1alpha1.IdlePolicy{}
	if suspend > 0 {
		p.SuspendAfterSeconds = &suspend
	}
	if remove > 0 {
		p.DeleteAfterSeconds = &remove
	}
	return p
}

func ephemeral(w *world) {
	w.session.Status.Storage = &v1alpha1.StorageStatus{Type: v1alpha1.StorageEmptyDir}
	w.pod = builtPod(w.session, w.class)
}

func gone(w *world) { w.pod, w.observation = nil, link.Observation{} }

// What happens by time alone, and when the next of it does: a session that nobody
// touches must be looked at then.
func TestTime(t *testing.T) {
	waiting := []v1alpha1.SessionMessage{{}}
	for name, tc := range map[string]struct {
		change            func(w *world)
		suspended, delete bool
		next              time.Duration
	}{
		"nothing is asked":              {func(*world) {}, false, false, 0},
		"idle, but not for long enough": {func(w *world) { w.session.Spec.IdlePolicy = policyOf(601, 0) }, false, false, time.Second},
		"idle for long enough":          {func(w *world) { w.session.Spec.IdlePolicy = policyOf(600, 0) }, true, false, 0},
		"idle, and later deleted":       {func(w *world) { w.session.Spec.IdlePolicy = policyOf(600, 660) }, true, false, time.Minute},
		"idle, and deleted now":         {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 600) }, true, true, 0},
		"deleted on an EmptyDir too": {func(w *world) {
			w.session.Spec.IdlePolicy = policyOf(0, 600)
			ephemeral(w)
		}, false, true, 0},
		"not suspended on an EmptyDir": {func(w *world) {
			w.session.Spec.IdlePolicy = policyOf(60, 0)
			ephemeral(w)
		}, false, false, 0},
		"idle, by the class's default":                {func(w *world) { w.class.Spec.Defaults.IdlePolicy = policyOf(601, 0) }, false, false, time.Second},
		"idle for long enough by the class's default": {func(w *world) { w.class.Spec.Defaults.IdlePolicy = policyOf(600, 660) }, true, false, time.Minute},
		"the session's own policy holds": {func(w *world) {
			w.session.Spec.IdlePolicy, w.class.Spec.Defaults.IdlePolicy = policyOf(0, 601), policyOf(60, 600)
		}, false, false, time.Second},
		"a default does not suspend on an EmptyDir, and deletes": {func(w *world) {
			w.class.Spec.Defaults.IdlePolicy = policyOf(60, 601)
			ephemeral(w)
		}, false, false, time.Second},
		"the class is gone, and its default with it": {func(w *world) { w.class = nil }, false, false, 0},
		"a message waits": {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 600); w.messages = waiting }, false, false, 0},
		"a turn runs": {func(w *world) {
			w.session.Spec.IdlePolicy = policyOf(60, 600)
			w.observation.Observed.Activity.State = wire.InTurn
		}, false, false, 0},
		"the agent is paused": {func(w *world) {
			w.session.Spec.IdlePolicy = policyOf(60, 600)
			w.observation.Observed.Activity.State = wire.Paused
		}, false, false, 0},
		"the agent has not been heard":           {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 600); w.observation = link.Observation{} }, false, false, 0},
		"the clock went back":                    {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 0); w.now = noon.Add(-time.Hour) }, false, false, 51 * time.Minute},
		"suspended for idleness":                 {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 0); gone(w) }, true, false, 0},
		"suspended for idleness, then a message": {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 0); gone(w); w.messages = waiting }, false, false, 0},
		"suspended for idleness, then deleted":   {func(w *world) { w.session.Spec.IdlePolicy = policyOf(60, 600); gone(w) }, true, true, 0},
		"suspended by the user is kept":          {func(w *world) { w.session.Spec.IdlePolicy = policyOf(0, 600); w.session.Spec.Suspend = true; gone(w) }, true, false, 0},
		"resumed a moment ago": {func(w *world) {
			w.session.Spec.IdlePolicy = policyOf(60, 0)
			setCondition(w, v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonNotRequested, noon.Add(-time.Second))
		}, false, false, 59 * time.Second},
		"a deadline to come":           {func(w *world) { w.session.Spec.ActiveDeadlineSeconds = new(int64(3601)) }, false, false, time.Second},
		"a deadline before it started": {func(w *world) { w.session.Spec.ActiveDeadlineSeconds = new(int64(1)); w.session.Status.StartTime = nil }, false, false, 0},
		"the nearest of all": {func(w *world) {
			w.session.Spec.ActiveDeadlineSeconds = new(int64(3602))
			w.session.Spec.IdlePolicy = policyOf(603, 604)
		}, false, false, 2 * time.Second},
		"finished, kept for good":        {func(w *world) { complete(w, time.Minute); w.session.Spec.IdlePolicy = policyOf(1, 2) }, true, false, 0},
		"finished, kept for a while":     {func(w *world) { complete(w, time.Minute); w.session.Spec.TTLSecondsAfterFinished = new(int64(61)) }, false, false, time.Second},
		"finished, kept for long enough": {func(w *world) { complete(w, time.Minute); w.session.Spec.TTLSecondsAfterFinished = new(int64(60)) }, false, true, 0},
		"finished, kept not at all":      {func(w *world) { complete(w, 0); w.session.Spec.TTLSecondsAfterFinished = new(int64(0)) }, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle()
			tc.change(w)
			if got := w.suspending(); got != tc.suspended {
				t.Errorf("suspending() = %t", got)
			}
			if why := w.expiry(); (why != "") != tc.delete {
				t.Errorf("expiry() = %q", why)
			}
			if got := w.nextTime(); got != tc.next {
				t.Errorf("nextTime() = %s, want %s", got, tc.next)
			}
		})
	}
}

func TestHowASessionFinishes(t *testing.T) {
	answered := v1alpha1.SessionMessage{}
	meta.SetStatusCondition(&answered.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAnswered, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAnswered})
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"every message is answered":       {func(*world) {}, v1alpha1.ReasonSucceeded},
		"the last turn failed":            {func(w *world) { w.observation.Observed.Messages[1].Reason = "ModelFailed" }, v1alpha1.ReasonFailed},
		"the last turn met a limit":       {func(w *world) { w.observation.Observed.Messages[1].Reason = "TokenLimit" }, v1alpha1.ReasonLimitReached},
		"an earlier turn met a limit":     {func(w *world) { w.observation.Observed.Messages[0].Reason = "StepLimit" }, v1alpha1.ReasonSucceeded},
		"an earlier turn failed":          {func(w *world) { w.observation.Observed.Messages[0].Reason = "ModelFailed" }, v1alpha1.ReasonSucceeded},
		"it stays open":                   {func(w *world) { w.session.Spec.Completion = v1alpha1.CompletionNever }, ""},
		"a turn runs":                     {func(w *world) { w.observation.Observed.Activity.State = wire.InTurn }, ""},
		"no turn has been begun":          {func(w *world) { w.observation.Observed.Activity.Turns = 0 }, ""},
		"a sender has yet to be told":     {func(w *world) { w.messages = append(w.messages, v1alpha1.SessionMessage{}) }, ""},
		"the agent has not been heard":    {func(w *world) { w.observation = link.Observation{} }, ""},
		"the agent does not answer":       {func(w *world) { w.observation.Unreachable = true }, ""},
		"the pod goes away":               {func(w *world) { w.pod.DeletionTimestamp = new(metav1.NewTime(noon)) }, ""},
		"the deadline is over":            {func(w *world) { w.session.Spec.ActiveDeadlineSeconds = new(int64(3600)) }, v1alpha1.ReasonDeadlineExceeded},
		"the deadline, while suspended":   {func(w *world) { w.session.Spec.ActiveDeadlineSeconds = new(int64(3600)); gone(w) }, v1alpha1.ReasonDeadlineExceeded},
		"the deadline is to come":         {func(w *world) { w.session.Spec.ActiveDeadlineSeconds = new(int64(3601)); gone(w) }, ""},
		"the volume is lost, and is told": {func(w *world) { w.claim = nil }, v1alpha1.ReasonStateLost},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle()
			w.session.Spec.Completion = v1alpha1.CompletionWhenIdle
			w.observation.Observed.Activity.Turns = 2
			w.observation.Observed.Messages = []wire.MessageStatus{{State: wire.Answered, Reason: "Completed"}, {UID: "m-1", State: wire.Answered, Reason: "Completed"}}
			w.messages = []v1alpha1.SessionMessage{answered}
			tc.change(w)
			v := completedOf(w)
			if v.is() != (tc.want != "") || v.is() && v.reason != tc.want {
				t.Errorf("Completed is %+v, want %q", v, tc.want)
			}
			status := statusOf(w)
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			stalled := isTrue(status.Conditions, v1alpha1.ConditionStalled)
			if v.is() && (ready.Reason != tc.want || (ready.Status == metav1.ConditionTrue) != (tc.want == v1alpha1.ReasonSucceeded) || stalled == (ready.Status == metav1.ConditionTrue)) {
				t.Errorf("Ready is %+v, Stalled %t", ready, stalled)
			}
			if v.is() && status.CompletionTime == nil {
				t.Error("there is no completion time")
			}
		})
	}
}

func TestIdleSinceIsTheEndOfTheLastTurn(t *testing.T) {
	w := idle()
	before := w.session.Status.Activity.IdleSince
	if got := statusOf(w).Activity.IdleSince; !got.Equal(before) {
		t.Errorf("idle since %v, want %v as before", got, before)
	}
	w.observation.Observed.Activity.State = wire.InTurn
	w.session.Status = statusOf(w)
	if got := w.session.Status.Activity.IdleSince; got != nil {
		t.Errorf("idle since %v in a turn", got)
	}
	w.observation.Observed.Activity.State = wire.Idle
	if got := statusOf(w).Activity.IdleSince; got == nil || !got.Time.Equal(noon) {
		t.Errorf("idle since %v, want noon", got)
	}
}

func TestIdleConditions(t *testing.T) {
	w := idle()
	w.session.Spec.IdlePolicy = policyOf(60, 0)
	gone(w)
	s := statusOf(w)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSuspended); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonIdle {
		t.Errorf("Suspended is %+v", c)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonSuspended {
		t.Errorf("Ready is %+v", c)
	}
	if plan, _ := planPod(w); plan != leavePod {
		t.Errorf("planPod() = %d while suspended", plan)
	}
	w.messages = []v1alpha1.SessionMessage{{}}
	if plan, _ := planPod(w); plan != createPod {
		t.Errorf("planPod() = %d with a message that waits", plan)
	}
	// A class's default does not put a session into the wrong that never asked for it.
	w = settled()
	w.class.Spec.Defaults.IdlePolicy = policyOf(60, 0)
	s = statusOf(w)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
	// Where it cannot be kept, it is said at once and not when the time has come.
	w = settled()
	w.session.Spec.IdlePolicy = policyOf(60, 0)
	s = statusOf(w)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonStorageNotPersistent {
		t.Errorf("Ready is %+v", c)
	}
	if w.pod.Status.Phase != corev1.PodRunning || w.suspending() {
		t.Error("a session whose log would end is suspended")
	}
}

// An outdated pod is replaced when that disturbs nobody, and not again and again.
func TestWhenAnOutdatedPodIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   bool
	}{
		"idle":                         {func(*world) {}, true},
		"the class says OnRestart":     {func(w *world) { w.class.Spec.UpdateStrategy = v1alpha1.UpdateOnRestart }, false},
		"the class says nothing":       {func(w *world) { w.class.Spec.UpdateStrategy = "" }, false},
		"the pod is current":           {func(w *world) { w.inputs = w.pod.Annotations[podspec.AnnotationInputs] }, false},
		"today's inputs are not known": {func(w *world) { w.inputs = "" }, false},
		"the log would end":            {ephemeral, false},
		"a turn runs":                  {func(w *world) { w.observation.Observed.Activity.State = wire.InTurn }, false},
		"a message waits":              {func(w *world) { w.messages = []v1alpha1.SessionMessage{{}} }, false},
		"the agent has not been heard": {func(w *world) { w.observation = link.Observation{} }, false},
		"the pod is young":             {func(w *world) { w.pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Second)) }, false},
		"somebody took our annotation": {func(w *world) { delete(w.pod.Annotations, podspec.AnnotationInputs) }, false},
		"no pod would come after it":   {func(w *world) { w.refused = refuse("x", "x") }, false},
		"the session is finished":      {func(w *world) { complete(w, time.Minute) }, false},
		"the pod is on its way out":    {func(w *world) { w.pod.DeletionTimestamp = new(metav1.NewTime(noon)) }, false},
		"admission added a container":  {func(w *world) { w.pod.Spec.Containers = append(w.pod.Spec.Containers, corev1.Container{Name: "x"}) }, true},
		"admission alone changed a pod": {func(w *world) {
			w.inputs = w.pod.Annotations[podspec.AnnotationInputs]
			w.pod.Spec.PriorityClassName = "x"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle()
			w.class.Spec.UpdateStrategy, w.inputs = v1alpha1.UpdateWhenIdle, "other"
			tc.change(w)
			if got := w.replaceable(); got != tc.want {
				t.Errorf("replaceable() = %t", got)
			}
		})
	}
}

func TestWhichMessagesAreSuperfluous(t *testing.T) {
	w := idle()
	w.class.Spec.History.Messages = new(int32(2))
	for i := range 6 {
		m := v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), OwnerReferences: []metav1.OwnerReference{{UID: w.session.UID}}}}
		if i != 1 { // it waits for its answer
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAnswered, Status: metav1.ConditionTrue})
		}
		if i == 2 {
			m.OwnerReferences = nil // it is not ours to remove
		}
		w.messages = append(w.messages, m)
	}
	names := func() (s string) {
		for _, m := range superfluous(w) {
			s += m.Name
		}
		return s
	}
	if got := names(); got != "ad" {
		t.Errorf("superfluous are %q, want a and d", got)
	}
	w.class.Spec.History.Messages = new(int32(0))
	if got := names(); got != "adef" {
		t.Errorf("with none to keep %q", got)
	}
	w.class.Spec.History.Messages = nil
	if got := names(); got != "" {
		t.Errorf("with the default %q", got)
	}
}
