// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// AnnotationSessionUID names the session that a claim without an owner was made for.
const AnnotationSessionUID = v1alpha1.GroupName + "/session-uid"

// ClaimName is the name of the volume claim of a session.
func ClaimName(session *v1alpha1.AgentSession) string { return PodName(session) + "-data" }

// Storage is what holds log and workspace of a session: what it has already, else its
// own choice, else the class's.
func Storage(session *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) v1alpha1.Storage {
	s := v1alpha1.Storage{Type: v1alpha1.StorageEmptyDir, Size: new(resource.MustParse(v1alpha1.DefaultStorageSize))}
	if class.Spec.Storage != nil {
		s = over(s, class.Spec.Storage.Storage)
	}
	if w := session.Spec.Workspace; w != nil && w.Storage != nil {
		s = over(s, *w.Storage)
	}
	if have := session.Status.Storage; have != nil {
		s.Type = have.Type
	}
	return s
}

func over(base, choice v1alpha1.Storage) v1alpha1.Storage {
	return v1alpha1.Storage{
		Type:             choice.Type,
		Size:             cmp.Or(choice.Size, base.Size),
		StorageClassName: cmp.Or(choice.StorageClassName, base.StorageClassName),
	}
}

// HoldsState reports whether a volume of a pod is the one with log and workspace.
func HoldsState(v corev1.Volume) bool { return v.Name == volumeData }

// StorageOf is the storage that a pod was built with.
func StorageOf(pod *corev1.Pod) *v1alpha1.StorageStatus {
	for _, v := range pod.Spec.Volumes {
		switch {
		case !HoldsState(v):
		case v.PersistentVolumeClaim != nil:
			return &v1alpha1.StorageStatus{Type: v1alpha1.StoragePersistentVolumeClaim, ClaimName: v.PersistentVolumeClaim.ClaimName}
		default:
			return &v1alpha1.StorageStatus{Type: v1alpha1.StorageEmptyDir}
		}
	}
	return nil
}

// Claim is the volume claim of a session. One that is to be retained has no owner; its
// annotation says whose it is.
func Claim(in Input) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	storage := Storage(in.Session, in.Class)
	spec := corev1ac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: *storage.Size}))
	if storage.StorageClassName != "" {
		spec.WithStorageClassName(storage.StorageClassName)
	}
	labels := in.labels()
	delete(labels, LabelIncarnation) // it outlives each
	c := corev1ac.PersistentVolumeClaim(ClaimName(in.Session), in.Session.Namespace).
		WithLabels(labels).
		WithAnnotations(map[string]string{AnnotationSessionUID: string(in.Session.UID)}).
		WithSpec(spec)
	if s := in.Class.Spec.Storage; s == nil || s.Retention != v1alpha1.RetentionRetain {
		c.WithOwnerReferences(owner(in.Session))
	}
	return c
}

func (in Input) persistent() bool {
	return Storage(in.Session, in.Class).Type == v1alpha1.StoragePersistentVolumeClaim
}

func dataVolume(in Input) *corev1ac.VolumeApplyConfiguration {
	if in.persistent() {
		return corev1ac.Volume().WithName(volumeData).WithPersistentVolumeClaim(
			corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(ClaimName(in.Session)))
	}
	return emptyDir(volumeData, *Storage(in.Session, in.Class).Size)
}
