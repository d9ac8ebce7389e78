// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentSessionStatus is what the operator has seen of a session.
type AgentSessionStatus struct {
	// observedGeneration is the generation of the spec that this status answers
	// to. -1 until the operator has seen the session.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// className is the class in use, fixed when the session was first accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`

	// policy is what spec, class and namespace together result in: the lowest of
	// them, part by part. It is enforced once applied has the same digest.
	// +optional
	Policy *PolicyStatus `json:"policy,omitempty"`

	// applied is the policy that the session's pod has confirmed: it is
	// enforced, nothing wider runs any more, and the model is told before its
	// next answer.
	// +optional
	Applied *AppliedStatus `json:"applied,omitempty"`

	// enforcement is what the pod found that its node can enforce.
	// +optional
	Enforcement *EnforcementStatus `json:"enforcement,omitempty"`

	// activity is what the agent is doing.
	// +optional
	Activity *ActivityStatus `json:"activity,omitempty"`

	// usage counts model tokens over the whole session.
	// +optional
	Usage *UsageStatus `json:"usage,omitempty"`

	// log names the last event of the session's log. Status, usage and replies
	// are derived from that log.
	// +optional
	Log *LogStatus `json:"log,omitempty"`

	// podName is the name of the session's pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodName string `json:"podName,omitempty"`

	// nodeName is the node that the pod runs on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// model is the name of the model in use.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model,omitempty"`

	// storage is the volume of the session, fixed with its first pod.
	// +optional
	Storage *StorageStatus `json:"storage,omitempty"`

	// startTime is when the session's agent was first seen to run. After that, a
	// session with EmptyDir storage is finished when its pod is lost.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the session finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// conditions say how the session is doing. Look at Ready first; its reason
	// is that of the first thing that is not as wanted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StorageStatus is the volume of a session.
type StorageStatus struct {
	// type of the volume.
	// +required
	Type StorageType `json:"type"`

	// claimName is the name of the PersistentVolumeClaim, where it is one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName,omitempty"`
}

// PolicyStatus is a resolved policy.
type PolicyStatus struct {
	// mode is how far tools may modify files.
	// +required
	Mode SandboxMode `json:"mode"`

	// network is what tool processes may reach.
	// +required
	Network NetworkAccess `json:"network"`

	// approval says whether a person may be asked.
	// +required
	Approval ApprovalPolicy `json:"approval"`

	// digest identifies the policy, its ceiling included: the SHA-256 of its
	// bytes.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`

	// clamped lists what the spec asks for and class or namespace do not allow.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=3
	Clamped []Clamp `json:"clamped,omitempty"`
}

// Clamp is one part of the policy that was asked wider than it may be.
type Clamp struct {
	// field is the part: mode, network or approval.
	// +required
	// +kubebuilder:validation:Enum=mode;network;approval
	Field string `json:"field"`

	// requested is what the spec asks for.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Requested string `json:"requested"`

	// by names whose ceiling is in the way.
	// +required
	By ClampSource `json:"by"`
}

// ClampSource is whose ceiling narrowed a part of a policy.
// +kubebuilder:validation:Enum=Class;Namespace
type ClampSource string

const (
	// ClampedByClass is the ceiling of the session's class.
	ClampedByClass ClampSource = "Class"
	// ClampedByNamespace is the label agentsession.dev/max-mode of the session's
	// namespace.
	ClampedByNamespace ClampSource = "Namespace"
)

// AppliedStatus is a policy that is enforced.
type AppliedStatus struct {
	// mode is how far tools may modify files.
	// +required
	Mode SandboxMode `json:"mode"`

	// network is what tool processes may reach.
	// +required
	Network NetworkAccess `json:"network"`

	// approval says whether a person may be asked.
	// +required
	Approval ApprovalPolicy `json:"approval"`

	// digest identifies the policy: the same as policy.digest once the switch is
	// through.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`

	// generation of the session's spec that the policy was made from.
	// +required
	Generation int64 `json:"generation"`

	// time is when the agent logged that the policy is enforced.
	// +required
	Time metav1.Time `json:"time"`

	// snapshotSeq is the number of the log's event that tells the model of this
	// policy. Unset where runtimeContext is Suppressed.
	// +optional
	SnapshotSeq int64 `json:"snapshotSeq,omitempty"`

	// killedProcesses is how many processes the switch to this policy ended.
	// +optional
	KilledProcesses int64 `json:"killedProcesses,omitempty"`
}

// EnforcementLevel is how much of the modes a node can enforce.
// +kubebuilder:validation:Enum=Full;Files;Mount;None
type EnforcementLevel string

const (
	// EnforcementFull has everything: Landlock of ABI 6 or later and seccomp.
	EnforcementFull EnforcementLevel = "Full"
	// EnforcementFiles has Landlock of ABI 3 to 5, which confines files but not
	// signals, and seccomp.
	EnforcementFiles EnforcementLevel = "Files"
	// EnforcementMount has seccomp and the read-only mount alone.
	EnforcementMount EnforcementLevel = "Mount"
	// EnforcementNone proves nothing: no tool runs.
	EnforcementNone EnforcementLevel = "None"
)

// EnforcementStatus is what the probe in the pod found.
type EnforcementStatus struct {
	// level sums it up: Full, Files, Mount or None.
	// +required
	Level EnforcementLevel `json:"level"`

	// landlockABI is the version of Landlock that the node's kernel offers; 0
	// where there is none.
	// +optional
	LandlockABI int32 `json:"landlockABI,omitempty"`

	// layers that were proved, for example landlock and seccomp.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Layers []string `json:"layers,omitempty"`
}

// ActivityState is what an agent is doing.
// +kubebuilder:validation:Enum=Idle;InTurn;WaitingForApproval;Paused
type ActivityState string

const (
	// ActivityIdle waits for a message.
	ActivityIdle ActivityState = "Idle"
	// ActivityInTurn works on a message.
	ActivityInTurn ActivityState = "InTurn"
	// ActivityWaitingForApproval works on a message, and goes on with it when a
	// person has decided on a call, or nobody did in time.
	ActivityWaitingForApproval ActivityState = "WaitingForApproval"
	// ActivityPaused starts nothing until what is missing is there again.
	ActivityPaused ActivityState = "Paused"
)

// ActivityStatus is what the agent is doing.
type ActivityStatus struct {
	// state is Idle (waits for a message), InTurn (works on one),
	// WaitingForApproval (a call of the turn waits for a person) or Paused (starts
	// nothing until what is missing is there again; the conditions say what).
	// +required
	State ActivityState `json:"state"`

	// idleSince is since when the agent waits for a message.
	// +optional
	IdleSince *metav1.Time `json:"idleSince,omitempty"`

	// turns that were begun: one for each user message.
	// +optional
	Turns int64 `json:"turns,omitempty"`

	// steps that were taken: a request to the model and the tool calls that it
	// asked for.
	// +optional
	Steps int64 `json:"steps,omitempty"`

	// calls is how many tool calls run now.
	// +optional
	Calls int64 `json:"calls,omitempty"`

	// pendingApprovals is how many tool calls wait for a person. Each ends as
	// denied when nobody lets it run within approval.timeoutSeconds.
	// +optional
	PendingApprovals int32 `json:"pendingApprovals"`
}

// UsageStatus counts model tokens.
type UsageStatus struct {
	// inputTokens that the provider did not have in its cache.
	// +optional
	InputTokens int64 `json:"inputTokens,omitempty"`

	// cachedInputTokens that the provider had in its cache.
	// +optional
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"`

	// outputTokens that the model wrote.
	// +optional
	OutputTokens int64 `json:"outputTokens,omitempty"`

	// totalTokens is the sum of the three.
	// +optional
	TotalTokens int64 `json:"totalTokens,omitempty"`

	// cachedPercent is how much of all input came from the cache.
	// +optional
	CachedPercent int32 `json:"cachedPercent,omitempty"`
}

// LogStatus names the last event of a log.
type LogStatus struct {
	// lastSeq is its number.
	// +required
	LastSeq int64 `json:"lastSeq"`

	// digest covers it and everything before it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest,omitempty"`
}
