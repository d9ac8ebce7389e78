// SPDX-License-Identifier: Apache-2.0

// Package model speaks to language models. It decides how a request becomes
// bytes, how a stream of chunks becomes one answer, and which kind of trouble an
// endpoint is in. It refuses to know why a request is made: it keeps no history,
// runs no tool, retries nothing and logs nothing.
//
// The same Request always gives the same bytes, and a history that only grows
// gives a body whose prefix only grows: the model, tools and system text, and then
// the raw JSON of each content block, without the marks that tell a provider where
// to cache (these move). A caller can record
// the digest of those bytes before they leave; Send sends exactly them, or nothing.
package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
)

// Provider is one way to reach a model.
type Provider interface {
	// Prepare renders the request. It does no I/O.
	Prepare(Request) (Prepared, error)
	// Send sends the bytes of p once and yields the answer as it comes. The last
	// Delta carries the whole Answer; without one, the last error says why. Errors
	// are *Error, or the context's when the caller ended it. Breaking out of the
	// loop ends the request.
	Send(ctx context.Context, p Prepared) iter.Seq2[Delta, error]
}

// Request is everything that shapes the bytes. Messages come last in the body.
type Request struct {
	Model      string
	Parameters Parameters
	System     string
	Tools      []ToolSpec
	Messages   []Message
}

// Parameters stay constant over a session. All of them stand in the logged
// header, because all of them are needed to render the same bytes again.
type Parameters struct {
	// MaxTokens bounds the answer; 0 leaves it to the endpoint.
	MaxTokens int `json:"maxTokens,omitempty"`
	// MaxTokensField is the name under which MaxTokens is sent: "max_tokens" (the
	// default, which most servers know) or "max_completion_tokens" (which OpenAI's
	// reasoning models insist on).
	MaxTokensField string `json:"maxTokensField,omitempty"`
	// Effort is the reasoning effort in the endpoint's own words; empty sends none.
	Effort string `json:"effort,omitempty"`
	// Thinking is the kind of reasoning, where an endpoint lets one choose it in a
	// field of that name: "adaptive", "enabled", "disabled". Empty sends none.
	Thinking string `json:"thinking,omitempty"`
	// ReturnReasoning sends the reasoning of earlier answers back, as
	// reasoning_content of assistant messages. Some endpoints want it, others
	// refuse it; by default it stays in the log only. What an answer has a
	// ReasoningState for goes back in any case: who signs it wants it.
	ReturnReasoning bool `json:"returnReasoning,omitempty"`
}

// ToolSpec is a tool as the model sees it. Schema is a JSON schema object.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Role says who speaks in a Message.
type Role string

// The roles. The system text is not a message.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is one entry of the transcript.
type Message struct {
	Role      Role   `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning,omitempty"` // of Assistant
	// ReasoningState is the Answer's, handed back unread.
	ReasoningState json.RawMessage `json:"reasoningState,omitempty"` // of Assistant
	ToolCalls      []ToolCall      `json:"toolCalls,omitempty"`      // of Assistant
	// ToolCallID names the call that a Tool message answers.
	ToolCallID string `json:"toolCallID,omitempty"`
}

// ToolCall is a call as the model wrote it. Arguments is the raw string, valid
// JSON or not: it goes back exactly as it came.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Prepared is a request as bytes.
type Prepared struct {
	body   []byte
	digest string
	model  string // for messages
}

func newPrepared(model string, body []byte) Prepared {
	sum := sha256.Sum256(body)
	return Prepared{body: body, digest: hex.EncodeToString(sum[:]), model: model}
}

// Body is the request's body. It must not be changed.
func (p Prepared) Body() []byte { return p.body }

// Digest is the SHA-256 of Body, in hex.
func (p Prepared) Digest() string { return p.digest }

// Delta is one piece of an answer. Content and Reasoning are what was added.
type Delta struct {
	Content   string
	Reasoning string
	// Answer is set on the last Delta only, and means that the answer is complete.
	Answer *Answer
}

// Finish says why the model stopped. Reasons that are not listed here are passed
// on in the endpoint's own words.
type Finish string

// The finish reasons that the loop tells apart.
const (
	FinishStop      Finish = "stop"
	FinishToolCalls Finish = "tool_calls"
	// FinishLength means that the answer was cut: its calls must not be run.
	FinishLength Finish = "length"
)

// Answer is a complete answer. Its strings are valid UTF-8. Calls are run unless
// Finish is FinishLength: some endpoints say stop although they call tools. Call
// IDs are unique within the answer; an endpoint may use them again in the next.
type Answer struct {
	Content   string
	Reasoning string
	// ReasoningState is what the provider wants back with the reasoning in later
	// requests: its own JSON, or nil. It is kept and passed on, never looked into.
	ReasoningState json.RawMessage
	ToolCalls      []ToolCall
	Finish         Finish
	Usage          Usage
}

// Usage counts tokens in buckets that do not overlap: the prompt was Input plus
// CachedInput. Reasoning is a part of Output. All are 0 when the endpoint told nothing.
type Usage struct {
	Input       int64
	CachedInput int64
	Output      int64
	Reasoning   int64
}
