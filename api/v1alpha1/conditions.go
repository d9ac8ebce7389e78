// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of an AgentSession.
const (
	// ConditionAccepted is True when the spec is valid, its class was found and the
	// policy is resolved. While it is False nothing is created.
	ConditionAccepted = "Accepted"
	// ConditionRunnerReady is True when all containers run, the agent answers the
	// operator and the log can be written.
	ConditionRunnerReady = "RunnerReady"
	// ConditionEnforced is True when the probe in the pod proved the layers that the
	// mode needs.
	ConditionEnforced = "Enforced"
	// ConditionModeApplied is True when the policy of this generation is enforced,
	// nothing wider runs any more, and no request can leave without stating it.
	ConditionModeApplied = "ModeApplied"
	// ConditionWaitingForApproval is True while a tool call waits for a person.
	ConditionWaitingForApproval = "WaitingForApproval"
	// ConditionActive is True while a turn runs.
	ConditionActive = "Active"
	// ConditionSuspended is True when the session has no pod because that is wanted, and
	// its state is kept.
	ConditionSuspended = "Suspended"
	// ConditionOutdated is True when the pod was built from older inputs than today's:
	// another class or another operator.
	ConditionOutdated = "Outdated"
	// ConditionCompleted is True when the session is finished for good.
	ConditionCompleted = "Completed"
	// ConditionStalled is True when the session goes on only if somebody acts.
	ConditionStalled = "Stalled"
	// ConditionReady is True when the spec is met. Its reason is that of the first
	// condition in the way.
	ConditionReady = "Ready"
)

// Condition types of a SessionMessage.
const (
	// ConditionDelivered is True when the message is safely in the session's log.
	ConditionDelivered = "Delivered"
	// ConditionAnswered is True when the turn of the message has ended.
	ConditionAnswered = "Answered"
)

// Reasons of Accepted.
const (
	// ReasonAccepted is set on Accepted=True.
	ReasonAccepted = "Accepted"
	// ReasonClassNotFound is set when the named class does not exist, or none is named
	// and no class is marked as the default.
	ReasonClassNotFound = "ClassNotFound"
	// ReasonAmbiguousDefaultClass is set when no class is named and several are marked
	// as the default.
	ReasonAmbiguousDefaultClass = "AmbiguousDefaultClass"
	// ReasonModeNotPermitted is set when the spec asks for more than the ceiling and
	// the class rejects that.
	ReasonModeNotPermitted = "ModeNotPermitted"
	// ReasonModelNotAllowed is set when the class does not allow the model that the
	// spec names.
	ReasonModelNotAllowed = "ModelNotAllowed"
	// ReasonNamespaceNotAllowed is set when the class's allowedNamespaces do not select
	// the session's namespace.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonCABundleInvalid is set when the class's model.caBundle is not made of
	// certificates.
	ReasonCABundleInvalid = "CABundleInvalid"
	// ReasonToolsImageNotAllowed is set when a pod is to start and the class does not allow
	// the toolsImage that the spec names.
	ReasonToolsImageNotAllowed = "ToolsImageNotAllowed"
)

// Reasons of RunnerReady.
const (
	// ReasonRunnerReady is set on RunnerReady=True.
	ReasonRunnerReady = "RunnerReady"
	// ReasonNotAccepted is set on everything that waits for Accepted=True.
	ReasonNotAccepted = "NotAccepted"
	// ReasonPodPending is set while the pod is created, scheduled or started.
	ReasonPodPending = "PodPending"
	// ReasonPodRejected is set when the apiserver refuses the pod or what it needs (link
	// Secret, volume claim, NetworkPolicy), for example by a quota or an admission policy.
	ReasonPodRejected = "PodRejected"
	// ReasonNameTaken is set when an object of another owner has the name of the
	// session's pod, volume claim or NetworkPolicy. It is neither used nor removed.
	ReasonNameTaken = "NameTaken"
	// ReasonPodTerminating is set while the pod goes away.
	ReasonPodTerminating = "PodTerminating"
	// ReasonImagePullFailed is set when an image cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonContainerFailed is set when a container cannot be created or keeps ending.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonSourceFailed is set when the source of the workspace cannot be had as it is
	// asked for: it does not exist, or its server refuses.
	ReasonSourceFailed = "SourceFailed"
	// ReasonSourceUnavailable is set while the server of the workspace's source cannot be
	// reached. It is tried again.
	ReasonSourceUnavailable = "SourceUnavailable"
	// ReasonRunnerUnreachable is set when the agent does not answer the operator.
	ReasonRunnerUnreachable = "RunnerUnreachable"
	// ReasonAuthorityUnknown is set when the pod was started with a certificate authority that
	// the operator does not have, so that neither believes the other.
	ReasonAuthorityUnknown = "AuthorityUnknown"
	// ReasonNodeLost is set when the node does not report.
	ReasonNodeLost = "NodeLost"
	// ReasonToolsUnreachable is set when a tools container is not connected to the agent.
	ReasonToolsUnreachable = "ToolsUnreachable"
	// ReasonLogUnwritable is set when the agent cannot write the log; no call and no
	// request starts then.
	ReasonLogUnwritable = "LogUnwritable"
	// ReasonLogRolledBack is set when the log lacks an event that status knows.
	ReasonLogRolledBack = "LogRolledBack"
	// ReasonModelKeyMissing is set when the Secret with the model's key does not exist
	// or has no key apiKey. It is taken up when it appears.
	ReasonModelKeyMissing = "ModelKeyMissing"
)

// Reasons of Enforced.
const (
	// ReasonEnforced is set on Enforced=True.
	ReasonEnforced = "Enforced"
	// ReasonAwaitingProbe is set until the supervisors have reported.
	ReasonAwaitingProbe = "AwaitingProbe"
	// ReasonLandlockUnavailable is set when the node's kernel cannot confine file access
	// as the mode needs it.
	ReasonLandlockUnavailable = "LandlockUnavailable"
	// ReasonBelowMinimum is set when the node can enforce the mode, but less than the
	// class demands.
	ReasonBelowMinimum = "BelowMinimum"
	// ReasonProbeFailed is set when a layer is there but did not refuse what it must.
	ReasonProbeFailed = "ProbeFailed"
)

// Reasons of ModeApplied.
const (
	// ReasonApplied is set on ModeApplied=True when the policy is as asked.
	ReasonApplied = "Applied"
	// ReasonClamped is set on ModeApplied=True when class or namespace allow less than
	// was asked; the message names both.
	ReasonClamped = "Clamped"
	// ReasonPending is set until the agent has confirmed the policy, and on messages
	// until they are delivered.
	ReasonPending = "Pending"
	// ReasonDraining is set while what runs wider is ended.
	ReasonDraining = "Draining"
	// ReasonNotEnforced is set when the node cannot enforce the mode: no tool runs in it.
	ReasonNotEnforced = "NotEnforced"
	// ReasonPolicyOlder is set when the agent has a policy that was made from newer
	// objects than the operator has read so far.
	ReasonPolicyOlder = "PolicyOlder"
)

// Reasons of WaitingForApproval.
const (
	// ReasonApprovalPending is set on WaitingForApproval=True.
	ReasonApprovalPending = "ApprovalPending"
	// ReasonNonePending is set on WaitingForApproval=False.
	ReasonNonePending = "NonePending"
)

// ReasonUnknownMaxMode is the reason of an event on a namespace whose label
// agentsession.dev/max-mode names no mode.
const ReasonUnknownMaxMode = "UnknownMaxMode"

// Reasons of Active.
const (
	// ReasonInTurn is set on Active=True.
	ReasonInTurn = "InTurn"
	// ReasonWaitingForInput is set when every message is answered.
	ReasonWaitingForInput = "WaitingForInput"
	// ReasonPaused is set when the agent starts nothing because something is missing.
	ReasonPaused = "Paused"
	// ReasonModelUnavailable is set, on Ready too, when the last turn failed because of the model's
	// endpoint. The next message tries again.
	ReasonModelUnavailable = "ModelUnavailable"
)

// Reasons of Outdated.
const (
	// ReasonCurrent is set on Outdated=False.
	ReasonCurrent = "Current"
	// ReasonInputsChanged is set on Outdated=True.
	ReasonInputsChanged = "InputsChanged"
)

// Reasons of Suspended.
const (
	// ReasonSuspended is set on Suspended=True, on Ready=True of a suspended session, and
	// on all that waits for it to be resumed.
	ReasonSuspended = "Suspended"
	// ReasonIdle is set on Suspended=True of a session that was idle for as long as its
	// idlePolicy says. A message resumes it.
	ReasonIdle = "Idle"
	// ReasonNotRequested is set while the session is wanted to run.
	ReasonNotRequested = "NotRequested"
	// ReasonStorageNotPersistent is set when suspending would lose the session's log.
	ReasonStorageNotPersistent = "StorageNotPersistent"
)

// Reasons of Completed.
const (
	// ReasonRunning is set on Completed=False, and on Ready=True.
	ReasonRunning = "Running"
	// ReasonSucceeded is set when completion is WhenIdle and every message is answered. It
	// is the reason of Ready=True then.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed is set when completion is WhenIdle and the last turn ended without an
	// answer. Where it ended at a limit the reason is LimitReached.
	ReasonFailed = "Failed"
	// ReasonDeadlineExceeded is set when the session ran for its activeDeadlineSeconds.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonStateLost is set when the session's volume was lost, and its log with it.
	ReasonStateLost = "StateLost"
)

// ReasonExpired is the reason of the event of a session that is deleted because its
// time is over.
const ReasonExpired = "Expired"

// ReasonOutOfMemory is the reason of the event of a session a container of which used up
// its memory. The session goes on.
const ReasonOutOfMemory = "OutOfMemory"

// ReasonNone is set on Stalled=False.
const ReasonNone = "None"

// Reasons of a SessionMessage.
const (
	// ReasonDelivered is set on Delivered=True.
	ReasonDelivered = "Delivered"
	// ReasonSessionNotFound is set when the named session does not exist.
	ReasonSessionNotFound = "SessionNotFound"
	// ReasonSessionCompleted is set when the session finished before the message.
	ReasonSessionCompleted = "SessionCompleted"
	// ReasonAnswered is set on Answered=True when the model answered.
	ReasonAnswered = "Answered"
	// ReasonTurnFailed is set on Answered=True when the turn ended without an answer.
	ReasonTurnFailed = "TurnFailed"
	// ReasonCancelled is set on Answered=True when a newer message interrupted the turn.
	ReasonCancelled = "Cancelled"
	// ReasonLimitReached is set on Answered=True when the turn ended at a limit, and on
	// Completed=True when completion is WhenIdle and the last turn did.
	ReasonLimitReached = "LimitReached"
)
