// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// source is what the workspace is filled with; nil where it stays empty.
func (in Input) source() *v1alpha1.WorkspaceSource {
	w := in.Session.Spec.Workspace
	if w == nil || w.Source == nil || w.Source.Type == v1alpha1.SourceEmpty {
		return nil
	}
	return w.Source
}

// workspace is an ordinary init container: it ends before the first tools container
// starts, and with it everything that may see a repository's credentials. What it
// remembers is on the session's volume where no other container mounts it.
func workspace(in Input) []*corev1ac.ContainerApplyConfiguration {
	s := in.source()
	if s == nil {
		return nil
	}
	c := corev1ac.Container().
		WithName(WorkspaceContainer).
		WithImage(in.toolsImage()).
		WithCommand(toolboxProgram, "fetch").
		WithWorkingDir("/").
		WithTerminationMessagePath(corev1.TerminationMessagePathDefault).
		WithTerminationMessagePolicy(corev1.TerminationMessageReadFile).
		WithEnv(fetchVariables(in)...).
		WithResources(resources(in.Class.Spec.Resources.ToolsRW)).
		WithVolumeMounts(
			readOnly(mount(volumeToolbox, wire.ToolboxDir)),
			mount(volumeData, wire.Workspace).WithSubPath("workspace"),
			mount(volumeData, wire.SourceDir).WithSubPath("source"),
			readOnly(mount(volumeNoShm, "/dev/shm")),
		)
	if s.ConfigMap != nil {
		c.WithArgs("--config-map", s.ConfigMap.Name).WithVolumeMounts(readOnly(mount(volumeSourceFiles, wire.SourceFilesDir)))
	}
	if s.Git != nil {
		c.WithArgs("--git", s.Git.URL)
		if s.Git.Ref != "" {
			c.WithArgs("--ref", s.Git.Ref)
		}
		if name := s.Git.CredentialsSecretName; name != "" {
			c.WithArgs("--credentials", name).WithVolumeMounts(readOnly(mount(volumeSourceKey, wire.SourceKeyDir)))
		}
	}
	return []*corev1ac.ContainerApplyConfiguration{confined(in.toolsUser(), c)}
}

// sourceVolumes are optional, so that the container starts and says what is missing; the
// kubelet brings it when it appears.
func sourceVolumes(in Input) []*corev1ac.VolumeApplyConfiguration {
	s := in.source()
	switch {
	case s == nil:
		return nil
	case s.ConfigMap != nil:
		return []*corev1ac.VolumeApplyConfiguration{corev1ac.Volume().WithName(volumeSourceFiles).WithConfigMap(
			corev1ac.ConfigMapVolumeSource().WithName(s.ConfigMap.Name).WithOptional(true).WithDefaultMode(0o444))}
	case s.Git != nil && s.Git.CredentialsSecretName != "":
		return []*corev1ac.VolumeApplyConfiguration{corev1ac.Volume().WithName(volumeSourceKey).WithSecret(
			corev1ac.SecretVolumeSource().WithSecretName(s.Git.CredentialsSecretName).WithDefaultMode(secretMode).WithOptional(true))}
	}
	return nil
}
