// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"encoding/json"
	"time"
)

// The event types. The payload of each is the struct of the same name.
const (
	TypeSessionStart      Type = "session/start"
	TypeBoot              Type = "boot"
	TypePolicyApplied     Type = "policy/applied"
	TypeMessageReceived   Type = "message/received"
	TypeUserMessage       Type = "user/message"
	TypeContextSnapshot   Type = "context/snapshot"
	TypeTurnStart         Type = "turn/start"
	TypeStepStart         Type = "step/start"
	TypeRequestHeader     Type = "request/header"
	TypeRequestSent       Type = "request/sent"
	TypeAssistantMessage  Type = "assistant/message"
	TypeToolCall          Type = "tool/call"
	TypeToolStart         Type = "tool/start"
	TypeToolResult        Type = "tool/result"
	TypeRetry             Type = "retry"
	TypeLeaseExpired      Type = "lease/expired"
	TypeLeaseRenewed      Type = "lease/renewed"
	TypeApprovalRequested Type = "approval/requested"
	TypeApprovalDecided   Type = "approval/decided"
	TypeGrantUsed         Type = "grant/used"
	TypeCompaction        Type = "compaction"
	TypeStepEnd           Type = "step/end"
	TypeTurnEnd           Type = "turn/end"
	TypeSessionEnd        Type = "session/end"
)

// SessionStart is the first event of a session.
type SessionStart struct {
	SessionUID string `json:"sessionUID"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Config is the session's configuration as the controller sent it.
	Config json.RawMessage `json:"config,omitempty"`
}

// Boot is the first event of each start of the agent, after SessionStart if that
// is new. Tool calls that it finds open are answered right behind it.
type Boot struct {
	Boot         int    `json:"boot"`
	PodUID       string `json:"podUID"`
	Incarnation  string `json:"incarnation,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`
	// Cut says what recovery dropped, if it dropped anything.
	Cut *Cut `json:"cut,omitempty"`
}

// The causes of a PolicyApplied.
const (
	CauseStart   = "start"   // the first policy of a session, or of a boot
	CauseSpec    = "spec"    // the session's spec changed
	CauseCeiling = "ceiling" // a class or namespace ceiling changed
)

// PolicyApplied says that a policy stands: nothing wider is left alive.
type PolicyApplied struct {
	// Policy is the policy's bytes exactly as the controller sent them, and
	// Digest their SHA-256 in hex.
	Policy string `json:"policy"`
	Digest string `json:"digest"`
	// Stamp is what the policy was made from, unparsed.
	Stamp  json.RawMessage `json:"stamp,omitempty"`
	Cause  string          `json:"cause"`
	Epoch  uint64          `json:"epoch"`
	Killed int             `json:"killed"` // processes ended by this narrowing
}

// MessageReceived says that a message was accepted for delivery. It may be
// acknowledged to the controller once it is committed.
type MessageReceived struct {
	UID       string    `json:"uid"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Author    string    `json:"author,omitempty"`
	Content   string    `json:"content"`
	Interrupt bool      `json:"interrupt,omitempty"`
}

// UserMessage puts a received message, or the session's prompt, into the transcript.
type UserMessage struct {
	Turn int `json:"turn"`
	// MessageUID is empty for the session's own prompt.
	MessageUID string `json:"messageUID,omitempty"`
	Author     string `json:"author,omitempty"`
	// Content is the text as the model sees it.
	Content string `json:"content"`
}

// ContextSnapshot states the standing policy to the model.
type ContextSnapshot struct {
	PolicySeq uint64 `json:"policySeq"`
	// Text is the whole message; empty when the snapshot is the one that clears.
	Text  string `json:"text"`
	Clear bool   `json:"clear,omitempty"`
}

// TurnStart opens a turn.
type TurnStart struct {
	Turn       int    `json:"turn"`
	MessageUID string `json:"messageUID,omitempty"`
}

// StepStart opens a step: one request and the calls that it causes.
type StepStart struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// RequestHeader is everything in front of the messages. It is logged only when it changes.
type RequestHeader struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Parameters and Tools are compact JSON in the form of the model package's types.
	Parameters json.RawMessage `json:"parameters"`
	System     string          `json:"system"`
	Tools      json.RawMessage `json:"tools"`
}

// RequestSent is committed before the request leaves.
type RequestSent struct {
	Turn    int `json:"turn"`
	Step    int `json:"step"`
	Attempt int `json:"attempt"` // from 1
	// Digest is the SHA-256 of the body in hex, Bytes its length.
	Digest      string `json:"digest"`
	Bytes       int    `json:"bytes"`
	HeaderSeq   uint64 `json:"headerSeq"`
	PolicySeq   uint64 `json:"policySeq"`
	SnapshotSeq uint64 `json:"snapshotSeq"`
	// Ask is set on the request for a summary: it carries the transcript up to UpTo, the
	// snapshot where that is not the last one there, and then this text as a user
	// message. It leaves no trace in the transcript.
	Ask  string `json:"ask,omitempty"`
	UpTo uint64 `json:"upTo,omitempty"`
}

// ModelCall is a tool call as the model wrote it.
type ModelCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments is the raw string that came; it is replayed as it is, valid JSON or not.
	Arguments string `json:"arguments"`
}

// Usage counts tokens in buckets that do not overlap. Reasoning is a part of Output.
type Usage struct {
	Input       int64 `json:"input"`
	CachedInput int64 `json:"cachedInput"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning,omitempty"`
}

// AssistantMessage is a complete answer. An answer that broke off is not logged as one.
type AssistantMessage struct {
	Turn      int         `json:"turn"`
	Step      int         `json:"step"`
	Content   string      `json:"content"`
	Reasoning string      `json:"reasoning,omitempty"`
	ToolCalls []ModelCall `json:"toolCalls,omitempty"`
	// ReasoningState is what the provider that gave the answer wants back with its
	// reasoning, such as signatures, in that provider's own form.
	ReasoningState json.RawMessage `json:"reasoningState,omitempty"`
	Finish         string          `json:"finish"`
	Usage          Usage           `json:"usage"`
}

// ToolCall says that a call was taken up from the answer. From here on it needs a result.
type ToolCall struct {
	Turn      int    `json:"turn"`
	Step      int    `json:"step"`
	CallID    string `json:"callID"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolStart is committed before the call may have any effect. A call that has it
// and no result had an unknown outcome; a call without it never started.
type ToolStart struct {
	CallID    string `json:"callID"`
	PolicySeq uint64 `json:"policySeq"`
	// ToldSeq is the policy that the request that asked for the call was told of.
	ToldSeq uint64 `json:"toldSeq,omitempty"`
	Epoch   uint64 `json:"epoch"`
	// Profile is what the call runs under, unparsed.
	Profile json.RawMessage `json:"profile"`
	// Grant is the ID of the ApprovalRequested whose grant replaces the mode for this call.
	Grant string `json:"grant,omitempty"`
}

// The outcomes of a ToolResult. An empty outcome means that the tool answered.
const (
	OutcomeNotStarted = "not-started" // safe to repeat
	OutcomeUnknown    = "unknown"     // it started, and nobody saw it end
	OutcomeKilled     = "killed"      // ended by a narrowing or a stop
	OutcomeRefused    = "refused"     // the gate let it not start
)

// ToolResult answers a call. A failing tool is a result.
type ToolResult struct {
	CallID string `json:"callID"`
	// Text is what the model reads.
	Text    string `json:"text"`
	IsError bool   `json:"isError,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	// Denial is the typed reason when the sandbox refused, unparsed.
	Denial json.RawMessage `json:"denial,omitempty"`
	// Profile is what the call ran under, unparsed; absent when it did not run.
	Profile json.RawMessage `json:"profile,omitempty"`
	// File is the file that the call read or wrote, as the model knows it from here on.
	File *FileVersion `json:"file,omitempty"`
	// Terminal is what became of the terminal that the call was about, if it was about one.
	Terminal *TerminalState `json:"terminal,omitempty"`
}

// FileVersion is the version of a file: the SHA-256 of its content in hex.
type FileVersion struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// TerminalState says whether a terminal is open when the model is told so.
type TerminalState struct {
	Name string `json:"name"`
	Open bool   `json:"open"`
}

// StepEnd closes a step.
type StepEnd struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// TurnEnd closes a turn: Reason is one word for programs, Message a sentence for people.
type TurnEnd struct {
	Turn    int    `json:"turn"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// SessionEnd is the last event of a session that ended in order.
type SessionEnd struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}
