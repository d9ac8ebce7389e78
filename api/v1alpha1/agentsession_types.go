// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentSession is one conversation with an agent that runs in a pod of its
// own. The spec says how far the agent's tools may reach; the tools enforce
// it in the kernel, and the agent tells the model whenever it changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=ags,categories=agents
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.applied.mode`,description="The sandbox mode that is enforced now"
// +kubebuilder:printcolumn:name="Approval",type=string,JSONPath=`.status.applied.approval`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.activity.pendingApprovals`,description="How many tool calls wait for a person"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.podName`,priority=1
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,priority=1
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.model`,priority=1
// +kubebuilder:printcolumn:name="Tokens",type=integer,JSONPath=`.status.usage.totalTokens`,priority=1
// +kubebuilder:printcolumn:name="Cached%",type=integer,JSONPath=`.status.usage.cachedPercent`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a session must have at most 52 characters, only a-z, 0-9 and '-', and begin and end with a letter or digit: choose another name"
type AgentSession struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what you want of the session. The operator never writes to it.
	// +required
	Spec AgentSessionSpec `json:"spec"`

	// status is what the operator has seen of the session.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AgentSessionStatus `json:"status,omitzero"`
}

// AgentSessionList is a list of sessions.
// +kubebuilder:object:root=true
type AgentSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AgentSession `json:"items"`
}

// AgentSessionSpec is what is wanted of a session. className, prompt,
// instructions, model, toolsImage, workspace and runtimeContext cannot change later.
// +kubebuilder:validation:XValidation:rule="has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)",message="className cannot be added, changed or removed later: create a new session with the class that you want",fieldPath=".className"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) == has(oldSelf.prompt) && (!has(self.prompt) || self.prompt == oldSelf.prompt)",message="prompt cannot be added, changed or removed later: create a SessionMessage to say more",fieldPath=".prompt"
// +kubebuilder:validation:XValidation:rule="has(self.instructions) == has(oldSelf.instructions) && (!has(self.instructions) || self.instructions == oldSelf.instructions)",message="instructions cannot be added, changed or removed later: create a new session, or say it in a SessionMessage",fieldPath=".instructions"
// +kubebuilder:validation:XValidation:rule="has(self.model) == has(oldSelf.model) && (!has(self.model) || self.model == oldSelf.model)",message="model cannot be added, changed or removed later: create a new session with the model that you want",fieldPath=".model"
// +kubebuilder:validation:XValidation:rule="has(self.toolsImage) == has(oldSelf.toolsImage) && (!has(self.toolsImage) || self.toolsImage == oldSelf.toolsImage)",message="toolsImage cannot be added, changed or removed later: create a new session with the image that you want",fieldPath=".toolsImage"
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace)",message="workspace cannot be added, changed or removed later: create a new session with the workspace that you want",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.runtimeContext) == has(oldSelf.runtimeContext) && (!has(self.runtimeContext) || self.runtimeContext == oldSelf.runtimeContext)",message="runtimeContext cannot be added, changed or removed later: create a new session",fieldPath=".runtimeContext"
type AgentSessionSpec struct {
	// className names the AgentSessionClass that says how the session runs and
	// what it may reach at most. Unset: the class that is marked as the default
	// (`kubectl get agsc`). Cannot change; status.className shows the class in
	// use.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClassName string `json:"className,omitempty"`

	// sandbox says how far the agent's tools may reach. It can change at any
	// time; no pod restarts. The class, or the label agentsession.dev/max-mode of
	// the namespace, may allow less: status.policy shows what results, status.applied what is enforced. Default: mode read-only, network
	// none.
	// +optional
	// +kubebuilder:default={}
	Sandbox Sandbox `json:"sandbox,omitzero"`

	// approval says whether a person may be asked to let a single tool call go
	// further than the sandbox allows. It can change at any time; a call that waits
	// is withdrawn when it does. The class may allow less. Default: policy ask,
	// timeoutSeconds 1800.
	// +optional
	// +kubebuilder:default={}
	Approval Approval `json:"approval,omitzero"`

	// prompt is the first user message, at most 64 KiB. Unset: the agent waits
	// for a SessionMessage. Cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.trim().size() > 0",message="prompt is empty: write a message, or leave the field out to start without one"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 65536",message="prompt is larger than 65536 bytes: shorten it"
	Prompt string `json:"prompt,omitempty"`

	// instructions are appended to the system prompt of the class, at most 64
	// KiB. Cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.trim().size() > 0",message="instructions are empty: write some, or leave the field out"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 65536",message="instructions are larger than 65536 bytes: shorten them"
	Instructions string `json:"instructions,omitempty"`

	// model chooses the model that answers. Unset: the class's default. Cannot
	// change.
	// +optional
	Model *ModelChoice `json:"model,omitempty"`

	// toolsImage is the image that the agent's commands run in, and that a source of the
	// workspace is fetched with: [registry/]name[:tag][@digest]. The class must allow it (its
	// images.tools, or a pattern of its images.allowedTools); that is looked at whenever a
	// pod is to start. Unset: the class's images.tools. Cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9](-*[A-Za-z0-9])*([.][A-Za-z0-9](-*[A-Za-z0-9])*)*(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64}|@sha512:[a-f0-9]{128})?$')",message="toolsImage must be [registry/]name[:tag][@digest] with a name in small letters, for example registry.example/team/tools:1.2"
	ToolsImage string `json:"toolsImage,omitempty"`

	// workspace describes where the agent's tools work. Unset: as the class
	// says. Cannot change.
	// +optional
	Workspace *Workspace `json:"workspace,omitempty"`

	// runtimeContext says whether the model is told the policy that stands, in
	// snapshots within the conversation. It never touches what is enforced.
	// Enabled: it is. Suppressed: it is not, and learns of denials from the
	// results of its tools alone. Cannot change. Default: Enabled.
	// +optional
	// +kubebuilder:default=Enabled
	RuntimeContext RuntimeContext `json:"runtimeContext,omitempty"`

	// limits bound what the session may do. They can change at any time. The
	// class may set limits too: of two the lower one holds. What is unset is as the
	// class says, in defaults.limits or limits.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// suspend ends the session's pod and keeps its state. A turn that is running
	// is interrupted and goes on when the session does; messages wait. It needs storage of type
	// PersistentVolumeClaim, or a session that has not started. Set it back to
	// false to go on. Default: false.
	// +optional
	// +kubebuilder:default=false
	Suspend bool `json:"suspend,omitempty"`

	// idlePolicy says what becomes of the session when it waits for a message for
	// long. Unset: what the class says in defaults.idlePolicy, else nothing.
	// +optional
	IdlePolicy *IdlePolicy `json:"idlePolicy,omitempty"`

	// activeDeadlineSeconds finishes the session, with DeadlineExceeded, so long
	// after its start (status.startTime). Time in which it is suspended counts.
	// Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished deletes the session so long after it finished. 0:
	// at once. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`

	// completion says when the session finishes by itself. Never: it stays open
	// for messages. WhenIdle: once prompt and messages are answered, at least one
	// of them; it has Succeeded when the last turn ended with an answer. The
	// reason is LimitReached when that turn met one of the limits, else Failed.
	// Default: Never.
	// +optional
	// +kubebuilder:default=Never
	Completion Completion `json:"completion,omitempty"`
}

// Completion is when a session finishes by itself.
// +kubebuilder:validation:Enum=Never;WhenIdle
type Completion string

const (
	// CompletionNever leaves the session open.
	CompletionNever Completion = "Never"
	// CompletionWhenIdle finishes it once its messages are answered.
	CompletionWhenIdle Completion = "WhenIdle"
)

// IdlePolicy is what becomes of a session that waits for a message. The time is
// counted from the end of its last turn (status.activity.idleSince), its start
// or its resumption, whichever is last.
// +kubebuilder:validation:XValidation:rule="has(self.suspendAfterSeconds) || has(self.deleteAfterSeconds)",message="idlePolicy is empty: set suspendAfterSeconds, deleteAfterSeconds or both, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.suspendAfterSeconds) || !has(self.deleteAfterSeconds) || self.deleteAfterSeconds > self.suspendAfterSeconds",message="deleteAfterSeconds must be greater than suspendAfterSeconds: both count from when the session became idle",fieldPath=".deleteAfterSeconds"
type IdlePolicy struct {
	// suspendAfterSeconds ends the pod of a session that is idle for so long, and
	// keeps its state. The next message starts it again. It needs storage of type
	// PersistentVolumeClaim. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	SuspendAfterSeconds *int64 `json:"suspendAfterSeconds,omitempty"`

	// deleteAfterSeconds deletes a session that is idle for so long, suspended or
	// not, unless spec.suspend is true. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	DeleteAfterSeconds *int64 `json:"deleteAfterSeconds,omitempty"`
}

// RuntimeContext is whether the model is told the policy that stands.
// +kubebuilder:validation:Enum=Enabled;Suppressed
type RuntimeContext string

const (
	// RuntimeContextEnabled tells the model whenever the policy changes.
	RuntimeContextEnabled RuntimeContext = "Enabled"
	// RuntimeContextSuppressed tells it nothing.
	RuntimeContextSuppressed RuntimeContext = "Suppressed"
)

// Sandbox is how far the tools of a session may reach.
type Sandbox struct {
	// mode is how far tools may modify files. read-only: nothing.
	// workspace-write: the workspace and private temporary areas.
	// danger-full-access: whatever the container itself allows. Going to a
	// narrower mode ends what runs under the wider one. Default: read-only.
	// +optional
	// +kubebuilder:default=read-only
	Mode SandboxMode `json:"mode,omitempty"`

	// network is what tool processes may reach over the network. none: nothing.
	// open: TCP and UDP, wherever the pod's own network and the NetworkPolicies of
	// its namespace let them. Going from open to none ends what runs. Default: none.
	// +optional
	// +kubebuilder:default=none
	Network NetworkAccess `json:"network,omitempty"`
}

// Approval is whether a person may be asked.
type Approval struct {
	// policy ask lets the agent put a call that the sandbox denied before a person,
	// who may let it run once under a wider mode, within the class's ceiling; the
	// turn waits meanwhile, and a change of the policy never does. There is no way
	// to decide on the cluster yet: such a call ends as denied after
	// timeoutSeconds. never asks nobody: what the sandbox forbids is denied at
	// once. Default: ask.
	// +optional
	// +kubebuilder:default=ask
	Policy ApprovalPolicy `json:"policy,omitempty"`

	// timeoutSeconds is how long a call waits for a person before it is denied,
	// at most a week. It holds for calls that begin to wait later. Default: 1800.
	// +optional
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}

// ModelChoice chooses a model.
type ModelChoice struct {
	// name of the model as its provider spells it. The class must allow it (its
	// model.defaultName or one of its model.allowedNames).
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\S+$`
	Name string `json:"name"`
}
