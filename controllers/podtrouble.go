// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// podTrouble says what keeps a pod from running, in words that stay the same while
// the cause does; nil when nothing is known to.
func podTrouble(p *corev1.Pod) *refusal {
	if p.DeletionTimestamp != nil {
		if p.Status.Reason == "NodeLost" {
			return refuse(v1alpha1.ReasonNodeLost, "The node %s does not report; the pod is going away.", p.Spec.NodeName)
		}
		return refuse(v1alpha1.ReasonPodTerminating, "The pod is going away.")
	}
	if ended(p) {
		return refuse(v1alpha1.ReasonContainerFailed, "The pod ended (%s: %s); it is replaced, a minute after it was created at the earliest.",
			reasonOf(p), cutLine(p.Status.Message, 512))
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := sourceTrouble(c); t != nil {
			return t
		}
		if t := containerTrouble(p, c); t != nil {
			return t
		}
	}
	if c := podCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Message != "" {
		return refuse(v1alpha1.ReasonPodPending, "The pod is not scheduled: %s", cutLine(c.Message, 1024))
	}
	return nil
}

func containerTrouble(p *corev1.Pod, c corev1.ContainerStatus) *refusal {
	if t := c.State.Terminated; t != nil && c.Name != podspec.WorkspaceContainer {
		return containerEnded(c, t)
	}
	w := c.State.Waiting
	if w == nil {
		return nil
	}
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return refuse(v1alpha1.ReasonImagePullFailed, "The image %q of container %s cannot be pulled: %s", c.Image, c.Name, pullMessage(w))
	case "CrashLoopBackOff":
		how := "keeps ending"
		if t := c.LastTerminationState.Terminated; t != nil {
			how = fmt.Sprintf("keeps ending (exit code %d, %s)", t.ExitCode, cutLine(t.Reason, 64))
		}
		return refuse(v1alpha1.ReasonContainerFailed, "The container %s %s: see kubectl logs %s -c %s --previous.%s", c.Name, how, p.Name, c.Name, oomHint(c))
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError", "PreCreateHookError", "PreStartHookError":
		return refuse(v1alpha1.ReasonContainerFailed, "The container %s does not start (%s): %s", c.Name, w.Reason, cutLine(w.Message, 512))
	}
	return nil
}

// containerEnded is said of a container between its end and its next start: in between it
// holds nobody up for long, but who ran out of memory wants to know.
func containerEnded(c corev1.ContainerStatus, t *corev1.ContainerStateTerminated) *refusal {
	return refuse(v1alpha1.ReasonContainerFailed, "The container %s ended (exit code %d, %s) and is started again.%s", c.Name, t.ExitCode, cutLine(t.Reason, 64), oomHint(c))
}

// oomHint is what to do about a container that ended for want of memory.
func oomHint(c corev1.ContainerStatus) string {
	if oomEnd(c) == nil {
		return ""
	}
	return " It used up its memory. " + oomRemedy("", c.Name)
}

// pullMessage is why an image cannot be pulled. The kubelet goes back and forth between
// the error and a back-off that quotes it; the message must not.
func pullMessage(w *corev1.ContainerStateWaiting) string {
	message := w.Message
	if _, quoted, ok := strings.Cut(message, "ErrImagePull: "); ok {
		message = quoted
	}
	if message == "" || strings.HasPrefix(message, "Back-off ") {
		message = "see kubectl describe pod"
	}
	return cutLine(message, 1024)
}

// nodeLost reports whether the pod's node stopped reporting: then the control plane,
// not the kubelet, says that a pod is not ready whose containers are.
func nodeLost(p *corev1.Pod) bool {
	ready, containers := podCondition(p, corev1.PodReady), podCondition(p, corev1.ContainersReady)
	return p.Status.Reason == "NodeLost" ||
		ready != nil && containers != nil && ready.Status != corev1.ConditionTrue && containers.Status == corev1.ConditionTrue
}

// cutLine makes one bounded line of a text that somebody else wrote.
func cutLine(s string, n int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s))
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n]) + "…"
}

// restarted says of the first of some containers that has been started anew how it ended before.
func restarted(p *corev1.Pod, names []string) *refusal {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && slices.Contains(names, c.Name) {
			return containerEnded(c, t)
		}
	}
	return nil
}
