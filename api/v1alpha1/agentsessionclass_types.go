// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultClassAnnotation marks the class of sessions that name none. The
// value is "true".
const DefaultClassAnnotation = GroupName + "/is-default-class"

// What is used where a class leaves the field unset.
const (
	DefaultAgentUser   int64 = 65532
	DefaultToolsUser   int64 = 65533
	DefaultFSGroup     int64 = 65533
	DefaultStorageSize       = "1Gi"
	// DefaultPolicyLeaseSeconds is how long a session may go on without the operator.
	DefaultPolicyLeaseSeconds int64 = 600
	DefaultMinimum                  = MinimumFiles
)

// AgentSessionClass says how sessions run and what they may reach at most.
// The class with the annotation agentsession.dev/is-default-class: "true" is
// used by sessions that name none.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:scope=Cluster,shortName=agsc,categories=agents
// +kubebuilder:printcolumn:name="Max mode",type=string,JSONPath=`.spec.ceiling.maxMode`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model.defaultName`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.metadata.annotations.agentsession\.dev/is-default-class`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Tools image",type=string,JSONPath=`.spec.images.tools`,priority=1
// +kubebuilder:printcolumn:name="Base URL",type=string,JSONPath=`.spec.model.baseURL`,priority=1
type AgentSessionClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is how the sessions of this class run. What a change does to sessions
	// that run already: model, systemPrompt, images, resources, security,
	// runtimeClassName, scheduling, terminationGracePeriodSeconds, env and
	// storage hold for pods and sessions that start later, but for where the model
	// is (baseURL, caBundle), which holds from the next request; the ceiling,
	// allowedNamespaces and the limits hold at once.
	// +required
	Spec AgentSessionClassSpec `json:"spec"`
}

// AgentSessionClassList is a list of classes.
// +kubebuilder:object:root=true
type AgentSessionClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AgentSessionClass `json:"items"`
}

// AgentSessionClassSpec is how the sessions of a class run.
type AgentSessionClassSpec struct {
	// images of the containers.
	// +required
	Images Images `json:"images"`

	// resources of the containers. Unset: none are requested and none limited.
	// +optional
	Resources ClassResources `json:"resources,omitzero"`

	// security says as whom the containers run.
	// +optional
	Security Security `json:"security,omitzero"`

	// runtimeClassName names the RuntimeClass of the pods. Where it does not exist, no pod
	// starts, and RunnerReady says PodRejected. What its runtime can enforce, each pod finds
	// out (status.enforcement). Unset: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// scheduling says where the pods run.
	// +optional
	Scheduling Scheduling `json:"scheduling,omitzero"`

	// terminationGracePeriodSeconds is how long the containers of a pod that is ended have to
	// end in order, before they are killed: the tools stop what runs, then the agent
	// finishes its log. The pod of a tools container that does not confirm a narrowing is
	// ended sooner. Unset: 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// env are variables that commands (bash, terminal) find in their environment in every
	// mode. A Git source of the workspace is fetched with those of them that name proxies
	// and certificate authorities. The environment of the tools image is not used for commands.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Env []Variable `json:"env,omitempty"`

	// storage is the volume that holds log and workspace. Unset: an EmptyDir of
	// 1Gi. A session may choose its own.
	// +optional
	Storage *ClassStorage `json:"storage,omitempty"`

	// model says which model answers and where.
	// +required
	Model Model `json:"model"`

	// systemPrompt begins the system prompt of every session, at most 64 KiB. A
	// session's instructions follow it.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 65536",message="systemPrompt is larger than 65536 bytes: shorten it"
	SystemPrompt string `json:"systemPrompt,omitempty"`

	// tools are those that the model is offered; a call of another one is refused. Like
	// systemPrompt they stand at the beginning of every request, so that a change holds
	// for sessions and pods that start later, and from the next time that a conversation
	// is shortened. What tools may do is bounded by the sandbox, not by this. Unset: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Tools []ToolName `json:"tools,omitempty"`

	// limits bound what each session of this class may do. A session may set
	// lower ones. A change holds at once for sessions that run already.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// defaults are what sessions have that do not say otherwise. They can be changed
	// at any time and hold at once.
	// +optional
	Defaults SessionDefaults `json:"defaults,omitzero"`

	// allowedNamespaces says which namespaces may have sessions of this class. It holds
	// at once: where one is not allowed any more, no pod starts; a session that runs
	// goes on with the policy that it has, and gets no wider one. Unset: every namespace.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// ceiling is the widest policy that sessions of this class may have.
	// Lowering it narrows running sessions at once.
	// +required
	Ceiling Ceiling `json:"ceiling"`

	// policyLeaseSeconds is how long a session that works may go on after it heard
	// the operator last. Then it pauses: no call and no model request starts and
	// everything that runs in its tools containers is ended, until the operator is
	// back. A session that does nothing is not concerned. Unset: 600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	PolicyLeaseSeconds int64 `json:"policyLeaseSeconds,omitempty"`

	// enforcement says what a node must be able to enforce. It holds at once.
	// +optional
	Enforcement Enforcement `json:"enforcement,omitzero"`

	// termination says how what runs is ended when the sandbox is narrowed. It
	// holds at once.
	// +optional
	Termination Termination `json:"termination,omitzero"`

	// history says how much of what is over stays in the apiserver.
	// +optional
	History History `json:"history,omitzero"`

	// updateStrategy says when a pod is replaced that was built from older inputs
	// than today's (condition Outdated). WhenIdle: when the session is idle, if its
	// storage outlives pods. OnRestart: it is not; the next pod is built anew.
	// Unset: OnRestart.
	// +optional
	UpdateStrategy UpdateStrategy `json:"updateStrategy,omitempty"`

	// egress bounds what the pods reach, and who reaches them, where the cluster's
	// network plugin enforces NetworkPolicies: the operator makes one for each session.
	// A change holds at once, also for pods that run. Unset: it makes none.
	// +optional
	Egress *Egress `json:"egress,omitempty"`

	// telemetry says who is told of what the agents of this class do. It can
	// change while they run. Unset: nobody.
	// +optional
	Telemetry Telemetry `json:"telemetry,omitzero"`
}

// SessionDefaults are what sessions have that do not say otherwise.
type SessionDefaults struct {
	// idlePolicy of sessions that have none. Of a session whose storage ends with its
	// pod, suspendAfterSeconds is left out: it could not go on. Unset: nothing becomes of
	// a session that waits.
	// +optional
	IdlePolicy *IdlePolicy `json:"idlePolicy,omitempty"`

	// limits of sessions, each where the session leaves it unset. The limits of the
	// class itself hold beside them. Unset: none.
	// +optional
	Limits *Limits `json:"limits,omitempty"`
}

// History is how much of what is over stays in the apiserver.
type History struct {
	// messages that are answered stay as objects, the newest so many of a session.
	// The session's log keeps all. Unset: 50.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Messages *int32 `json:"messages,omitempty"`
}

// DefaultHistoryMessages is how many answered messages stay where the class does
// not say.
const DefaultHistoryMessages = 50

// UpdateStrategy is when outdated pods are replaced.
// +kubebuilder:validation:Enum=WhenIdle;OnRestart
type UpdateStrategy string

const (
	// UpdateWhenIdle replaces them when their session is idle.
	UpdateWhenIdle UpdateStrategy = "WhenIdle"
	// UpdateOnRestart leaves them until they end for another reason.
	UpdateOnRestart UpdateStrategy = "OnRestart"
)

// Enforcement is what a node must be able to enforce.
type Enforcement struct {
	// minimum is the least level on which tools run. Full: every layer is there.
	// Files: files are confined completely; calls run one at a time, and there
	// are no terminals. Mount: the read-only mount and system-call filter alone, for mode
	// read-only; the wider modes still need Files. On a lesser node no tool runs,
	// and Enforced says BelowMinimum. Unset: Files.
	// +optional
	Minimum EnforcementMinimum `json:"minimum,omitempty"`
}

// Termination is how what runs is ended when the sandbox is narrowed.
type Termination struct {
	// graceSeconds is how long processes that a narrowing ends have to end by
	// themselves: each gets SIGTERM, and SIGKILL when the time is over. Nothing new
	// starts meanwhile, but until then they run as they did: the narrower policy is
	// confirmed (ModeApplied) only when they are gone. Unset: 0, they are killed at
	// once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
}

// EnforcementMinimum is the least level of enforcement that a class accepts.
// +kubebuilder:validation:Enum=Full;Files;Mount
type EnforcementMinimum string

const (
	// MinimumFull demands Landlock of ABI 6 or later and seccomp.
	MinimumFull EnforcementMinimum = "Full"
	// MinimumFiles demands Landlock of ABI 3 or later and seccomp.
	MinimumFiles EnforcementMinimum = "Files"
	// MinimumMount demands seccomp, and the read-only mount for mode read-only.
	MinimumMount EnforcementMinimum = "Mount"
)

// Telemetry says who is told of turns, model requests and tool calls: when they
// were, how long they took, what they cost and how they ended, never what was said.
// +kubebuilder:validation:XValidation:rule="!has(self.otlpEndpoint) || !isURL(self.otlpEndpoint) || url(self.otlpEndpoint).getScheme() == 'https' || (url(self.otlpEndpoint).getScheme() == 'http' && has(self.insecureHTTP) && self.insecureHTTP)",message="otlpEndpoint must begin with https://: over http the names of tools and models can be read on the way. Set insecureHTTP: true if that is acceptable here",fieldPath=".otlpEndpoint"
type Telemetry struct {
	// otlpEndpoint is the base URL of an OpenTelemetry collector that takes OTLP
	// over HTTP, without /v1/traces: for example https://collector.example:4318. The
	// session pods must be able to reach it. It must be https unless insecureHTTP
	// is set. Unset: nobody is told.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != '' && url(self).getQuery().size() == 0 && !self.contains('@') && !self.contains('#')",message="otlpEndpoint must be a URL with a scheme and a host, without user, query and fragment, for example https://collector.example:4318"
	OTLPEndpoint string `json:"otlpEndpoint,omitempty"`

	// insecureHTTP allows an otlpEndpoint of http. Default: false.
	// +optional
	InsecureHTTP bool `json:"insecureHTTP,omitempty"`
}

// OnExceed is what happens to a session that asks for more than its class
// allows.
// +kubebuilder:validation:Enum=Clamp;Reject
type OnExceed string

const (
	// OnExceedClamp gives the session the widest policy that the class allows.
	OnExceedClamp OnExceed = "Clamp"
	// OnExceedReject refuses the session, or the change, with Accepted=False.
	OnExceedReject OnExceed = "Reject"
)

// Ceiling is the widest policy that sessions may have.
type Ceiling struct {
	// maxMode is the widest sandbox mode. With read-only the pods have no
	// container that could write to the workspace; if it is raised later, pods
	// that run already stay read-only until they are started anew.
	// +required
	MaxMode SandboxMode `json:"maxMode"`

	// maxNetwork is the widest network access. Unset: none.
	// +optional
	MaxNetwork NetworkAccess `json:"maxNetwork,omitempty"`

	// maxApproval is the widest approval policy: never keeps calls of its sessions
	// from waiting for a person. Unset: ask.
	// +optional
	MaxApproval ApprovalPolicy `json:"maxApproval,omitempty"`

	// onExceed says what happens to a session that asks for more. Clamp: it gets
	// what the ceiling allows, and status.policy.clamped says so. Reject: it is
	// not accepted; a running session keeps the policy that it has, bounded by
	// the ceiling. Unset: Clamp.
	// +optional
	OnExceed OnExceed `json:"onExceed,omitempty"`
}
