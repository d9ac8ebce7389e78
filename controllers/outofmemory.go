// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// oomRecent is how old the end of a container may be for an operator that sees the pod for the
// first time to tell of it: one before it probably has told of an older one.
const oomRecent = 2 * time.Minute

// oomTold is what was told already of the containers of a pod that used up their memory.
type oomTold struct {
	pod   types.UID
	boot  uint64               // of the agent that counts the calls
	calls map[string]int       // by container
	ends  map[string]time.Time // by container, the newest
}

// noteOutOfMemory records an event for each container that used up its memory. The kernel ends one
// process, or the container with all that is in it; either may be over before a condition can say
// so, and who gave the container its memory wants to know all the same.
func (r *SessionReconciler) noteOutOfMemory(w *world) {
	if w.pod == nil || w.completed() != nil {
		return
	}
	told, known := r.memory.oomTold(w.session, w.pod.UID)
	notes, now := outOfMemory(w, told, known)
	if len(notes) > 0 || !known || now.boot != told.boot {
		r.memory.setOOMTold(w.session, now)
	}
	r.record(w.session, notes)
}

// outOfMemory says what is to be told of the containers that used up their memory, and what is
// told with that.
func outOfMemory(w *world, told oomTold, known bool) (notes []note, now oomTold) {
	now = oomTold{pod: w.pod.UID, boot: told.boot, calls: map[string]int{}, ends: map[string]time.Time{}}
	o := w.observation.Observed
	if o != nil {
		now.boot = o.Boot
	}
	for _, c := range slices.Concat(w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses) {
		now.ends[c.Name] = told.ends[c.Name]
		end := oomEnd(c)
		if end == nil || !end.FinishedAt.After(told.ends[c.Name]) {
			continue
		}
		now.ends[c.Name] = end.FinishedAt.Time
		if known || w.now.Sub(end.FinishedAt.Time) < oomRecent {
			notes = append(notes, oomNote(w, c.Name, "it was ended with all that ran in it, and is started again"))
		}
	}
	for _, name := range toolsContainers(w.pod) {
		report := w.reportOf(name)
		if report == nil {
			now.calls[name] = told.calls[name]
			continue
		}
		now.calls[name] = report.OutOfMemory
		if known && report.OutOfMemory > 0 && (now.boot != told.boot || report.OutOfMemory > told.calls[name]) {
			notes = append(notes, oomNote(w, name, "the kernel ended a process in it"))
		}
	}
	return notes, now
}

// oomEnd is the newest end of a container, if that was for want of memory.
func oomEnd(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated); t != nil && t.Reason == reasonOOMKilled {
		return t
	}
	return nil
}

// reasonOOMKilled is the kubelet's word.
const reasonOOMKilled = "OOMKilled"

func oomNote(w *world, container, what string) note {
	return note{corev1.EventTypeWarning, v1alpha1.ReasonOutOfMemory, "Observe",
		fmt.Sprintf("The container %s used up its memory: %s. The session goes on, and the model is told. %s", container, what, oomRemedy(w.session.Status.ClassName, container))}
}

// oomRemedy says how a container gets more memory. Who reads it may not own the class.
func oomRemedy(class, container string) string {
	field, ok := map[string]string{podspec.AgentContainer: "agent", podspec.WorkspaceContainer: "toolsRW", wire.ToolsRO: "toolsRO", wire.ToolsRW: "toolsRW"}[container]
	if !ok {
		return "See who put that container into the pod."
	}
	if class != "" {
		class = " " + class
	}
	return fmt.Sprintf("If that is too little, raise resources.%s.limits.memory of class%s: the session's next pod has it.", field, class)
}
