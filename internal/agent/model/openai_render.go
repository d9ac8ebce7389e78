// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The body of a chat completion, in the order in which it is sent. It is rendered by these types and
// not by the SDK's, so that an upgrade of the SDK cannot change a byte of it.
// Messages stand last: what grows is the end.
type chatBody struct {
	Model               string        `json:"model"`
	MaxTokens           int           `json:"max_tokens,omitempty"`
	MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
	ReasoningEffort     string        `json:"reasoning_effort,omitempty"`
	Thinking            *thinking     `json:"thinking,omitempty"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
	ToolChoice          string        `json:"tool_choice,omitempty"`
	Tools               []chatTool    `json:"tools,omitempty"`
	Messages            []chatMessage `json:"messages"`
}

type thinking struct {
	Type string `json:"type"`
}

func thinkingOf(p Parameters) *thinking {
	if p.Thinking == "" {
		return nil
	}
	return &thinking{p.Thinking}
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type chatMessage struct {
	Role string `json:"role"`
	// Content is null where an assistant message holds calls only.
	Content          *string    `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"`
	Function chatCallFunction `json:"function"`
}

type chatCallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Prepare implements Provider.
func (p *OpenAIChat) Prepare(r Request) (Prepared, error) {
	body, err := renderChat(r)
	if err != nil {
		return Prepared{}, errorf(BadRequest, "the model request cannot be rendered: %v", err)
	}
	return newPrepared(r.Model, body), nil
}

func renderChat(r Request) ([]byte, error) {
	body := chatBody{
		Model: r.Model, ReasoningEffort: r.Parameters.Effort, Thinking: thinkingOf(r.Parameters),
		Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		Messages: make([]chatMessage, 0, len(r.Messages)+1),
	}
	switch field := r.Parameters.MaxTokensField; field {
	case "", "max_tokens":
		body.MaxTokens = r.Parameters.MaxTokens
	case "max_completion_tokens":
		body.MaxCompletionTokens = r.Parameters.MaxTokens
	default:
		return nil, fmt.Errorf("maxTokensField %q is neither max_tokens nor max_completion_tokens", field)
	}
	if r.Model == "" {
		return nil, fmt.Errorf("it names no model")
	}
	for _, t := range r.Tools {
		if len(t.Schema) > 0 && !json.Valid(t.Schema) {
			return nil, fmt.Errorf("the schema of tool %q is not JSON", t.Name)
		}
		body.ToolChoice = "auto"
		body.Tools = append(body.Tools, chatTool{"function", chatFunction{t.Name, t.Description, t.Schema}})
	}
	if r.System != "" {
		body.Messages = append(body.Messages, chatMessage{Role: "system", Content: &r.System})
	}
	for i := range r.Messages {
		m, err := renderMessage(&r.Messages[i], r.Parameters.ReturnReasoning)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		body.Messages = append(body.Messages, m)
	}
	return encode(body)
}

// encode is the one way in which a body becomes bytes.
func encode(body any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func renderMessage(m *Message, reasoning bool) (chatMessage, error) {
	out := chatMessage{Role: string(m.Role), Content: &m.Content}
	switch m.Role {
	case User:
	case Tool:
		if m.ToolCallID == "" {
			return out, fmt.Errorf("a tool's answer names no call")
		}
		out.ToolCallID = m.ToolCallID
	case Assistant:
		if reasoning {
			out.ReasoningContent = m.Reasoning
		}
		for _, c := range m.ToolCalls {
			out.ToolCalls = append(out.ToolCalls, chatCall{c.ID, "function", chatCallFunction{c.Name, c.Arguments}})
		}
		if m.Content == "" && len(m.ToolCalls) > 0 {
			out.Content = nil
		}
	default:
		return out, fmt.Errorf("unknown role %q", m.Role)
	}
	return out, nil
}
