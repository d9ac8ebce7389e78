// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// SandboxMode is how far the tools of a session may reach: read-only,
// workspace-write or danger-full-access, from the narrowest to the widest.
// +kubebuilder:validation:Enum=read-only;workspace-write;danger-full-access
type SandboxMode string

const (
	// ModeReadOnly lets tools modify no file.
	ModeReadOnly SandboxMode = "read-only"
	// ModeWorkspaceWrite lets tools modify the workspace and private temporary
	// areas.
	ModeWorkspaceWrite SandboxMode = "workspace-write"
	// ModeDangerFullAccess adds no file rules to those of the container itself.
	ModeDangerFullAccess SandboxMode = "danger-full-access"
)

// MaxModeLabel is the label of a namespace that names the widest mode of its
// sessions. It narrows running sessions at once. A value that is no mode counts
// as read-only.
const MaxModeLabel = GroupName + "/max-mode"

// NetworkAccess is what tool processes may reach over the network.
// +kubebuilder:validation:Enum=none;open
type NetworkAccess string

const (
	// NetworkNone gives tool processes no network at all.
	NetworkNone NetworkAccess = "none"
	// NetworkOpen lets tool processes use TCP and UDP, as far as the pod's network lets them.
	NetworkOpen NetworkAccess = "open"
)

// ApprovalPolicy says whether a person may be asked to let one call run
// wider: ask or never.
// +kubebuilder:validation:Enum=ask;never
type ApprovalPolicy string

const (
	// ApprovalAsk lets a call wait for a person, who may let it run once under a
	// wider mode.
	ApprovalAsk ApprovalPolicy = "ask"
	// ApprovalNever asks nobody: what the mode forbids is denied.
	ApprovalNever ApprovalPolicy = "never"
)

// StorageType is the kind of volume that holds a session's log and
// workspace.
// +kubebuilder:validation:Enum=PersistentVolumeClaim;EmptyDir
type StorageType string

const (
	// StoragePersistentVolumeClaim lives as long as its session, or longer.
	StoragePersistentVolumeClaim StorageType = "PersistentVolumeClaim"
	// StorageEmptyDir lives on the node's disk for as long as the pod does.
	StorageEmptyDir StorageType = "EmptyDir"
)

// Retention is what becomes of a volume when its session is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type Retention string

const (
	// RetentionDelete has the claim deleted with the session.
	RetentionDelete Retention = "Delete"
	// RetentionRetain leaves the claim.
	RetentionRetain Retention = "Retain"
)

// Storage describes the one volume of a session.
// +kubebuilder:validation:XValidation:rule="!has(self.size) || quantity(string(self.size)).compareTo(quantity('16Mi')) >= 0",message="size must be at least 16Mi: the volume holds the session's log beside its workspace",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || string(self.size).size() <= 32",message="size has more than 32 characters: write it as a whole number with a unit, for example 2Gi",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule="!has(self.storageClassName) || self.type == 'PersistentVolumeClaim'",message="storageClassName is for a PersistentVolumeClaim: take it out, or set type to PersistentVolumeClaim",fieldPath=".storageClassName"
type Storage struct {
	// type of the volume. PersistentVolumeClaim outlives the pod: the session can
	// be suspended, and a pod that is lost is replaced. EmptyDir is on the node's
	// disk and ends with the pod; a session whose pod is lost is finished.
	// +required
	Type StorageType `json:"type"`

	// size that log and workspace may use together, for example 2Gi. At least
	// 16Mi. Unset in a session: what the class says. Unset in the class: 1Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName names the StorageClass of the claim. Unset in a session:
	// what the class says. Unset in the class: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	StorageClassName string `json:"storageClassName,omitempty"`
}

// ClassStorage is the storage of sessions that choose none, and what becomes of
// it.
type ClassStorage struct {
	Storage `json:",inline"`

	// retention says what becomes of a PersistentVolumeClaim, the session's own
	// choice of storage included, when its session is deleted. Delete: it is
	// deleted too. Retain: it stays, without an owner. It holds for claims that
	// are created later. Unset: Delete.
	// +optional
	Retention Retention `json:"retention,omitempty"`
}

// Limits bound what a session may do. They are checked before each request to
// the model; meeting one ends the turn, and the message says which.
type Limits struct {
	// maxTurns is how many messages the session may answer in all. A message
	// beyond it is marked as answered with the reason LimitReached. Unset: any
	// number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxTurns int64 `json:"maxTurns,omitempty"`

	// maxStepsPerTurn is how many requests the model may be sent for one
	// message. Unset: 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxStepsPerTurn int64 `json:"maxStepsPerTurn,omitempty"`

	// maxTotalTokens is how many tokens the session may use in all: input,
	// cached input and output. The request that passes it is the last one.
	// Unset: any number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000000
	MaxTotalTokens int64 `json:"maxTotalTokens,omitempty"`
}
