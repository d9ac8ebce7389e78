// SPDX-License-Identifier: Apache-2.0

// Package wire holds the messages between controller and agent (HTTPS) and
// between agent and supervisor (a UNIX socket), and how they are framed. It
// decides nothing about their content. docs/formats/wire.md describes both.
package wire

import (
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Version is the version of both protocols that this build speaks.
const Version = 1

// The link: where the agent listens and what it answers.
const (
	Port         = 8443
	DesiredPath  = "/v1/desired"
	ObservedPath = "/v1/observed" // ?after=REVISION waits until the revision is another one

	MaxDesired  = 8 << 20 // bytes of a body towards the agent
	MaxObserved = 1 << 20 // bytes of a body from the agent

	PollTimeout = 30 * time.Second // how long the agent holds a poll
)

// Desired is everything that the controller wants of one agent. A PUT replaces the whole.
type Desired struct {
	Wire        int           `json:"wire"`
	SessionUID  string        `json:"sessionUID"`
	Incarnation string        `json:"incarnation"` // which pod of the session this is meant for
	Config      Config        `json:"config"`
	Policy      string        `json:"policy"` // the document's bytes as they are, see package policy
	Stamp       policy.Stamp  `json:"stamp"`
	Replaces    *policy.Stamp `json:"replaces,omitempty"` // only after a 409: the stamp that this push replaces
	LogHead     LogHead       `json:"logHead"`            // the head that status knows
	// LeaseSeconds is how long after the last request the agent may go on; 0 is for ever.
	LeaseSeconds int64     `json:"leaseSeconds,omitempty"`
	Messages     []Message `json:"messages,omitempty"` // the undelivered ones, in order of delivery
	// Decisions are what people said to the approvals that the agent shows. One that is for
	// nothing that is open changes nothing.
	Decisions []Decision `json:"decisions,omitempty"`
	Stop      bool       `json:"stop,omitempty"` // finish the log and end: the session is over
	// Suspend is for a pod that is about to go while its session goes on in another: what runs is
	// stopped, its results are logged, the turn stays open, and nothing starts any more.
	Suspend bool `json:"suspend,omitempty"`
}

// Config is what the loop needs of session and class. The agent takes it into the
// log's header when the session starts.
type Config struct {
	Session      string `json:"session"` // namespace/name, for people
	Prompt       string `json:"prompt,omitempty"`
	SystemPrompt string `json:"systemPrompt,omitempty"` // the class's
	Instructions string `json:"instructions,omitempty"` // the session's, appended
	Model        Model  `json:"model"`
	// Tools are the names of those that the model is offered. Empty is all; a name that is not known
	// offers nothing.
	Tools     []string `json:"tools,omitempty"`
	Workspace string   `json:"workspace"` // the canonical path of the workspace in the tools containers
	// MinimumLevel is what the node must enforce before any call starts; unset or unknown is Full.
	MinimumLevel Level `json:"minimumLevel,omitempty"`

	Limits SessionLimits `json:"limits,omitzero"` // may change while the session runs

	// GraceSeconds is how long what a narrowing ends may take to end by itself, at most
	// MaxGraceSeconds. It may change while the session runs.
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
	// ApprovalTimeoutSeconds is how long a request waits for a person; 0 is DefaultApprovalTimeout.
	ApprovalTimeoutSeconds int64 `json:"approvalTimeoutSeconds,omitempty"`

	// TraceEndpoint is the base URL of the collector that is told of turns, requests and calls. It may
	// change while the session runs. Empty is none.
	TraceEndpoint string `json:"traceEndpoint,omitempty"`

	// RuntimeContext is fixed for a session. Empty is Enabled.
	RuntimeContext RuntimeContext `json:"runtimeContext,omitempty"`
}

// RuntimeContext says whether the model is told the standing policy.
type RuntimeContext string

const (
	RuntimeContextEnabled    RuntimeContext = "Enabled"
	RuntimeContextSuppressed RuntimeContext = "Suppressed" // it changes nothing about what is enforced
)

// SessionLimits bound what a session may do. A zero is no limit, but for the steps, which the
// agent bounds by itself.
type SessionLimits struct {
	MaxTurns        int64 `json:"maxTurns,omitempty"`
	MaxStepsPerTurn int64 `json:"maxStepsPerTurn,omitempty"`
	MaxTotalTokens  int64 `json:"maxTotalTokens,omitempty"` // input, cached input and output
}

// Model says which model answers and where.
type Model struct {
	Provider string `json:"provider"` // OpenAIChat or Anthropic
	BaseURL  string `json:"baseURL"`
	Name     string `json:"name"`

	// ContextWindow is how many tokens a request and its answer may have; 0 where nobody said.
	ContextWindow int64 `json:"contextWindow,omitempty"`
	// ReturnReasoning sends the reasoning of earlier answers back.
	ReturnReasoning bool `json:"returnReasoning,omitempty"`
	// KeySecret names the Secret that holds the endpoint's key, for people. Without a
	// key in it no request is made; "" means that the endpoint needs none.
	KeySecret string `json:"keySecret,omitempty"`
	// CABundle holds the roots of the endpoint's certificate, in PEM, instead of the system's. It may
	// change while the session runs.
	CABundle string `json:"caBundle,omitempty"`
}

// LogHead names the last event of a log. The zero value is an empty log.
type LogHead struct {
	Seq    uint64 `json:"seq"`
	Digest string `json:"digest,omitempty"`
}

// Message is one user message on its way to the agent.
type Message struct {
	UID       string    `json:"uid"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author,omitempty"`
	Content   string    `json:"content"`
	Interrupt bool      `json:"interrupt,omitempty"` // cancels the turn that runs when it comes
}

// DefaultApprovalTimeout is how long a request waits for a person where nobody said.
const DefaultApprovalTimeout = 30 * time.Minute

// Decision is what a person said to one request. It counts for the request with both its call
// and its digest, once, and only until the request's end.
type Decision struct {
	CallID   string `json:"callID"`
	Digest   string `json:"digest"` // of the Approval that was decided
	Decision Answer `json:"decision"`
	By       string `json:"by,omitempty"`     // who decided
	Reason   string `json:"reason,omitempty"` // for the model to read
}

// Answer is what can be said to a request.
type Answer string

const (
	Approved Answer = "Approved" // the call runs, once
	Denied   Answer = "Denied"
)

// Approval is a call that waits for a person. Silence until it expires is a denial.
type Approval struct {
	CallID        string      `json:"callID"`
	Seq           uint64      `json:"seq"` // of approval/requested
	PolicySeq     uint64      `json:"policySeq"`
	Tool          string      `json:"tool"`
	Mode          policy.Mode `json:"mode"` // that the call asks for
	Preview       string      `json:"preview"`
	Digest        string      `json:"digest"`
	Justification string      `json:"justification"` // the model's words, nobody else's
	ExpiresAt     time.Time   `json:"expiresAt"`
}

// MaxApprovals is how many approvals and decisions are told at most.
const MaxApprovals = 16

// Observed is what an agent says of itself. The controller takes it as untrusted.
type Observed struct {
	Wire        int      `json:"wire"`
	SessionUID  string   `json:"sessionUID"`
	Incarnation string   `json:"incarnation"`
	PodUID      string   `json:"podUID"`
	Boot        uint64   `json:"boot"`
	Revision    uint64   `json:"revision"` // grows with every change; starts anew with each boot
	Applied     *Applied `json:"applied,omitempty"`
	Unconfirmed []string `json:"unconfirmed,omitempty"` // containers that have not confirmed the policy
	// Overdue are those of them whose supervisor has had its time: only the end of the pod
	// makes sure that nothing of an earlier policy lives.
	Overdue    []string        `json:"overdue,omitempty"`
	Containers []Container     `json:"containers,omitempty"`
	Activity   Activity        `json:"activity"`
	Usage      Usage           `json:"usage"`
	Log        LogHead         `json:"log"`
	Messages   []MessageStatus `json:"messages,omitempty"`
	Approvals  []Approval      `json:"approvals,omitempty"` // that wait for a person
	Problems   []Problem       `json:"problems,omitempty"`
	// Settled is set once the agent has done what Stop or Suspend asks: its log is complete.
	Settled bool `json:"settled,omitempty"`
}

// Applied says which policy is enforced and told.
type Applied struct {
	Digest      policy.Digest `json:"digest"`
	Stamp       policy.Stamp  `json:"stamp"`
	Seq         uint64        `json:"seq"`         // of policy/applied
	SnapshotSeq uint64        `json:"snapshotSeq"` // of the snapshot that states it
	Killed      int           `json:"killed"`      // processes that the change ended
	Time        time.Time     `json:"time"`
}

// Container is what one tools container proved about its enforcement.
type Container struct {
	Name      string      `json:"name"`
	Connected bool        `json:"connected"`
	Report    Enforcement `json:"report"`
	// OutOfMemory counts the calls since the agent began during which the container's memory was used up.
	OutOfMemory int `json:"outOfMemory,omitempty"`
}

// Enforcement is what the probe of a supervisor found on its node.
type Enforcement struct {
	Level       Level    `json:"level"`
	LandlockABI int      `json:"landlockABI"` // 0 where there is none
	Layers      []string `json:"layers,omitempty"`
	Detail      string   `json:"detail,omitempty"` // why the level is not Full
}

// Activity is what the loop is doing.
type Activity struct {
	State State  `json:"state"`
	Turns uint64 `json:"turns"`
	Steps uint64 `json:"steps"`
	Calls int    `json:"calls"` // tool calls that run now
	// Terminals are those that are open: what runs in them goes on between turns.
	Terminals int `json:"terminals,omitempty"`
}

// State is the loop's state.
type State string

const (
	Idle   State = "Idle"
	InTurn State = "InTurn"
	// WaitingForApproval is a turn that goes on when a person has decided, or too late.
	WaitingForApproval State = "WaitingForApproval"
	Paused             State = "Paused" // no step starts: no policy yet, a container missing, a problem
)

// Usage counts tokens in disjoint buckets.
type Usage struct {
	Input       int64 `json:"input"` // not cached
	CachedInput int64 `json:"cachedInput"`
	Output      int64 `json:"output"`
}

// MessageStatus is how far the agent is with one message. Status of the newest 64 is kept.
type MessageStatus struct {
	UID      string       `json:"uid"` // "" for the session's prompt
	Sequence uint64       `json:"sequence"`
	State    MessageState `json:"state"`
	Turn     uint64       `json:"turn,omitempty"`
	Reply    string       `json:"reply,omitempty"`  // cut at MaxReply bytes
	Reason   string       `json:"reason,omitempty"` // of the turn's end: Completed, ModelFailed, …
}

// MaxReply is where replies are cut, in bytes.
const MaxReply = 8 << 10

// MessageState is the state of a message in the agent's log.
type MessageState string

const (
	Delivered MessageState = "Delivered" // durable in the log
	Answered  MessageState = "Answered"  // its turn has ended, for whatever reason
)

// Problem is something that keeps an agent from doing its work.
type Problem struct {
	Reason  ProblemReason `json:"reason"`
	Message string        `json:"message"`
}

// ProblemReason is the reason of a condition, as the agent knows it.
type ProblemReason string

const (
	LogUnwritable       ProblemReason = "LogUnwritable"
	LogRolledBack       ProblemReason = "LogRolledBack"
	StateLost           ProblemReason = "StateLost"
	ModelKeyMissing     ProblemReason = "ModelKeyMissing"
	ModelUnavailable    ProblemReason = "ModelUnavailable" // the last turn failed because of the model endpoint
	ToolsUnreachable    ProblemReason = "ToolsUnreachable"
	LandlockUnavailable ProblemReason = "LandlockUnavailable"
	ProbeFailed         ProblemReason = "ProbeFailed"
	BelowMinimum        ProblemReason = "BelowMinimum" // the node enforces the mode, and less than the class demands
)

// Refusal is the body of every answer that is not an observed state: 409 (with the
// stamp in force), 421 for a wrong session, incarnation or wire version, 400, 413.
type Refusal struct {
	Error string        `json:"error"`
	Stamp *policy.Stamp `json:"stamp,omitempty"`
}
