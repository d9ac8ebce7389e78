// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// confinedPod is the pod's part of the confinement: no way to the apiserver, nobody
// is root, no sight of each other's processes, the runtime's seccomp profile.
func confinedPod(in Input, spec *corev1ac.PodSpecApplyConfiguration) *corev1ac.PodSpecApplyConfiguration {
	return spec.
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithShareProcessNamespace(false).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithFSGroup(in.fsGroup()).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault)))
}

// confined is the container's part: one user that is not root, in a group of the same
// number, with no capability, no way to gain privileges and a root file system that
// cannot be written.
func confined(user int64, c *corev1ac.ContainerApplyConfiguration) *corev1ac.ContainerApplyConfiguration {
	return c.WithSecurityContext(corev1ac.SecurityContext().
		WithRunAsUser(user).
		WithRunAsGroup(user).
		WithAllowPrivilegeEscalation(false).
		WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))
}
