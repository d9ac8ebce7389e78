// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// filled reports whether the workspace of a pod holds what it is to hold at first. Until
// then no tools container starts, and the agent is told nothing.
func filled(p *corev1.Pod) bool {
	if !slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == podspec.WorkspaceContainer }) {
		return true
	}
	if c := podCondition(p, corev1.PodInitialized); c != nil && c.Status == corev1.ConditionTrue {
		return true
	}
	c := workspaceStatus(p)
	return c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
}

// filling reports whether the workspace is being filled.
func filling(p *corev1.Pod) bool {
	c := workspaceStatus(p)
	return c != nil && c.State.Running != nil && !filled(p)
}

func workspaceStatus(p *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == podspec.WorkspaceContainer })
	if i < 0 {
		return nil
	}
	return &p.Status.InitContainerStatuses[i]
}

// sourceTrouble says why the last fetch of the workspace's source failed. It stands while
// the kubelet waits, and while it tries again.
func sourceTrouble(c corev1.ContainerStatus) *refusal {
	if c.Name != podspec.WorkspaceContainer {
		return nil
	}
	t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	if t == nil {
		return nil
	}
	message := cutLine(t.Message, 1024)
	switch t.ExitCode {
	case wire.SourceFailed:
		return refuse(v1alpha1.ReasonSourceFailed, "The source of the workspace cannot be fetched: %s", message)
	case wire.SourceUnavailable:
		return refuse(v1alpha1.ReasonSourceUnavailable, "The source of the workspace cannot be fetched now, and is tried again: %s", message)
	}
	return nil
}
