// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/internal/wire"
)

func TestOverdue(t *testing.T) {
	startedBefore := func(d time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-d))}}
	}
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
		wait   time.Duration
	}{
		"a container that runs and does not answer": {func(w *world) { w.pod.Status.ContainerStatuses[1].State = startedBefore(time.Hour) }, wire.ToolsRW, 0},
		"it was restarted a moment ago":             {func(w *world) { w.pod.Status.ContainerStatuses[1].State = startedBefore(10 * time.Second) }, "", 20 * time.Second},
		"it does not run":                           {func(w *world) { w.pod.Status.ContainerStatuses[1].State = waiting("CrashLoopBackOff", "") }, "", 0},
		"unconfirmed, and still in time":            {func(w *world) { w.observation.Observed.Overdue = nil }, "", 0},
		"the agent itself does not answer":          {func(w *world) { w.observation.Unreachable = true }, "", 0},
		"the pod is going already":                  {func(w *world) { w.pod.DeletionTimestamp = new(metav1.NewTime(noon)) }, "", 0},
		"a container that the pod does not have":    {func(w *world) { w.observation.Observed.Overdue = []string{"agent", "made-up"} }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled()
			w.observation.Observed.Overdue, w.observation.Observed.Unconfirmed = []string{wire.ToolsRW}, []string{wire.ToolsRW}
			tc.change(w)
			if got, wait := overdue(w); got != tc.want || wait != tc.wait {
				t.Errorf("overdue() = %q, %s, want %q, %s", got, wait, tc.want, tc.wait)
			}
		})
	}
}
