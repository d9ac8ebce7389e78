// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

func TestPodPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   podPlan
	}{
		"none yet":                         {func(w *world) { w.pod, w.session.Status.StartTime = nil, nil }, createPod},
		"lost after it was told something": {func(w *world) { w.pod = nil }, leavePod},
		"running":                          {func(*world) {}, leavePod},
		"foreign":                          {func(w *world) { w.pod, w.foreign, w.session.Status.StartTime = nil, true, nil }, leavePod},
		"going away before it started": {func(w *world) {
			w.session.Status.StartTime, w.pod.DeletionTimestamp = nil, new(metav1.NewTime(noon))
		}, leavePod},
		"refused by the kubelet": {func(w *world) { w.session.Status.StartTime, w.pod.Status.Phase = nil, corev1.PodFailed }, removePod},
		"refused just now": {func(w *world) {
			w.session.Status.StartTime, w.pod.Status.Phase, w.pod.CreationTimestamp = nil, corev1.PodFailed, metav1.NewTime(noon)
		}, leavePod},
		"lost, and the volume is there":              {func(w *world) { w.persist(); w.pod = nil }, createPod},
		"lost with its volume":                       {func(w *world) { w.persist(); w.pod, w.claim = nil, nil }, leavePod},
		"its claim goes before it starts":            {func(w *world) { w.persist(); w.session.Status.StartTime, w.claim = nil, nil }, removePod},
		"evicted, and the volume is there":           {func(w *world) { w.persist(); w.pod.Status.Phase = corev1.PodFailed }, removePod},
		"going away, and the volume stays":           {func(w *world) { w.persist(); w.pod.DeletionTimestamp = new(metav1.NewTime(noon)) }, leavePod},
		"lost, and the session not accepted":         {func(w *world) { w.persist(); w.pod, w.refused = nil, refuse("x", "x") }, leavePod},
		"to be suspended, and its agent can be told": {func(w *world) { w.persist(); w.session.Spec.Suspend = true }, leavePod},
		"to be suspended, and no agent runs": {func(w *world) {
			w.persist()
			w.session.Spec.Suspend, w.pod.Status.PodIP = true, ""
		}, removePod},
		"being suspended": {func(w *world) {
			w.persist()
			w.session.Spec.Suspend, w.pod.DeletionTimestamp = true, new(metav1.NewTime(noon))
		}, leavePod},
		"suspended":                             {func(w *world) { w.persist(); w.session.Spec.Suspend, w.pod = true, nil }, leavePod},
		"to be suspended, but the log would go": {func(w *world) { w.session.Spec.Suspend = true }, leavePod},
		"suspended before it started": {func(w *world) {
			w.session.Spec.Suspend, w.session.Status.StartTime, w.pod = true, nil, nil
		}, leavePod},
		"suspended while it is created": {func(w *world) { w.session.Spec.Suspend, w.session.Status.StartTime = true, nil }, removePod},
		"finished, and its log is lost": {func(w *world) {
			meta.SetStatusCondition(&w.session.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCompleted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStateLost})
		}, removePod},
		"finished, and its agent can be told": {func(w *world) { complete(w, 0) }, leavePod},
		"finished, and its class is gone":     {func(w *world) { complete(w, 0); w.class, w.policy = nil, nil }, removePod},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled()
			tc.change(w)
			if got, _ := planPod(w); got != tc.want {
				t.Errorf("planPod() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestMessagesKeepTheirOrderAndTheWindow(t *testing.T) {
	var all []v1alpha1.SessionMessage
	for i := range 60 {
		m := v1alpha1.SessionMessage{}
		m.Spec.Content = strings.Repeat("x", i+1)
		if i < 5 {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDelivered, Status: metav1.ConditionTrue})
		}
		if i < 2 {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAnswered, Status: metav1.ConditionTrue})
		}
		all = append(all, m)
	}
	got := undelivered(all)
	if len(got) != messageWindow-3 || len(got[0].Content) != 6 || len(got[len(got)-1].Content) != messageWindow+2 {
		t.Errorf("%d messages from %d to %d", len(got), len(got[0].Content), len(got[len(got)-1].Content))
	}
}
