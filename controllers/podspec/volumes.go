// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	volumeData     = "data"      // log and workspace, each by its subPath
	volumeToolbox  = "toolbox"   // the toolbox binary
	volumeTLS      = "tls"       // the link Secret
	volumeModelKey = "model-key" // the Secret with the model's key
	volumeNoShm    = "no-shm"    // stays empty
	volumeShm      = "shm"
	volumeTmp      = "tmp"

	volumeSourceFiles = "source-files"       // the ConfigMap that a workspace is filled from
	volumeSourceKey   = "source-credentials" // the Secret with a repository's credentials
)

var (
	toolboxSize = resource.MustParse("256Mi") // two toolboxes, while one replaces the other
	ctlSize     = resource.MustParse("1Mi")   // a lock file and a socket
	tmpSize     = resource.MustParse("1Gi")
	shmSize     = resource.MustParse("64Mi") // what container runtimes give by default
)

// secretMode lets user and group read: the agent is in the group that owns the volumes.
const secretMode = 0o440

func ctlVolume(container string) string { return "ctl-" + container }

func volumes(in Input) []*corev1ac.VolumeApplyConfiguration {
	list := []*corev1ac.VolumeApplyConfiguration{
		dataVolume(in),
		emptyDir(volumeToolbox, toolboxSize),
		secret(volumeTLS, LinkSecretName(in.Session, in.Incarnation), false),
	}
	for _, name := range Containers(in.Class) {
		list = append(list, emptyDir(ctlVolume(name), ctlSize))
	}
	list = append(list, emptyDir(volumeNoShm, ctlSize))
	if in.writable() {
		shm := emptyDir(volumeShm, shmSize)
		shm.EmptyDir.WithMedium(corev1.StorageMediumMemory)
		list = append(list, shm, emptyDir(volumeTmp, tmpSize))
	}
	if name := in.Class.Spec.Model.KeySecretName; name != "" {
		// Optional, so that the agent starts and says that the key is missing; the kubelet
		// brings it when it appears.
		list = append(list, secret(volumeModelKey, name, true))
	}
	return append(list, sourceVolumes(in)...)
}

func emptyDir(name string, size resource.Quantity) *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(name).WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithSizeLimit(size))
}

func secret(name, secretName string, optional bool) *corev1ac.VolumeApplyConfiguration {
	source := corev1ac.SecretVolumeSource().WithSecretName(secretName).WithDefaultMode(secretMode)
	if optional {
		source.WithOptional(true).WithItems(corev1ac.KeyToPath().WithKey(wire.ModelKeyFile).WithPath(wire.ModelKeyFile))
	}
	return corev1ac.Volume().WithName(name).WithSecret(source)
}

func mount(volume, path string) *corev1ac.VolumeMountApplyConfiguration {
	return corev1ac.VolumeMount().WithName(volume).WithMountPath(path)
}

// readOnly makes a mount read-only with all that may be mounted below it, where the
// runtime can do that. Enabled would refuse to start on the others, and our volumes
// have nothing mounted below them.
func readOnly(m *corev1ac.VolumeMountApplyConfiguration) *corev1ac.VolumeMountApplyConfiguration {
	return m.WithReadOnly(true).WithRecursiveReadOnly(corev1.RecursiveReadOnlyIfPossible)
}
