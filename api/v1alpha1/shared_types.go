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
// +kubebuilder:validation:Enum=none
type NetworkAccess string

// NetworkNone gives tool processes no network at all.
const NetworkNone NetworkAccess = "none"

// ApprovalPolicy says whether a person may be asked to let one call run
// wider.
// +kubebuilder:validation:Enum=never
type ApprovalPolicy string

// ApprovalNever asks nobody: what the mode forbids is denied.
const ApprovalNever ApprovalPolicy = "never"

// StorageType is the kind of volume that holds a session's log and
// workspace.
// +kubebuilder:validation:Enum=EmptyDir
type StorageType string

// StorageEmptyDir lives on the node's disk for as long as the pod does.
const StorageEmptyDir StorageType = "EmptyDir"

// Storage describes the one volume of a session.
// +kubebuilder:validation:XValidation:rule="!has(self.size) || quantity(string(self.size)).compareTo(quantity('16Mi')) >= 0",message="size must be at least 16Mi: the volume holds the session's log beside its workspace",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || string(self.size).size() <= 32",message="size has more than 32 characters: write it as a whole number with a unit, for example 2Gi",fieldPath=".size"
type Storage struct {
	// type of the volume. EmptyDir is on the node's disk and ends with the pod;
	// a session whose pod is lost is finished.
	// +required
	Type StorageType `json:"type"`

	// size that log and workspace may use together, for example 2Gi. At least
	// 16Mi. Unset in a session: what the class says. Unset in the class: 1Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
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
