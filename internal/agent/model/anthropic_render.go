// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// messagesMaxTokens is sent where the parameters name no bound: the API wants one.
// It is a part of the bytes and must stay as it is.
const messagesMaxTokens = 16384

// The body of a message, in the order in which it is sent. It is rendered by
// these types and not by the SDK's, so that an upgrade of the SDK cannot change a
// byte of it. Messages stand last, and the blocks of a message too: what grows is
// the end, and nothing in front of it moves but the two cache breakpoints.
type messagesBody struct {
	Model        string         `json:"model"`
	MaxTokens    int            `json:"max_tokens"`
	OutputConfig *outputConfig  `json:"output_config,omitempty"`
	Thinking     *thinking      `json:"thinking,omitempty"`
	Stream       bool           `json:"stream"`
	ToolChoice   *toolChoice    `json:"tool_choice,omitempty"`
	Tools        []messagesTool `json:"tools,omitempty"`
	System       []block        `json:"system,omitempty"`
	Messages     []blockMessage `json:"messages"`
}

type outputConfig struct {
	Effort string `json:"effort"`
}

type toolChoice struct {
	Type string `json:"type"`
}

type messagesTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type blockMessage struct {
	Role    string   `json:"role"`
	Content []*block `json:"content"`
}

// block is a content block of any type. The breakpoint stands last.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    *string         `json:"signature,omitempty"`
	Data         string          `json:"data,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	Content      string          `json:"content,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"`
}

// Prepare implements Provider.
func (p *Anthropic) Prepare(r Request) (Prepared, error) {
	body, err := renderMessages(r)
	if err != nil {
		return Prepared{}, errorf(BadRequest, "the model request cannot be rendered: %v", err)
	}
	return newPrepared(r.Model, body), nil
}

func renderMessages(r Request) ([]byte, error) {
	if r.Model == "" {
		return nil, fmt.Errorf("it names no model")
	}
	body := messagesBody{
		Model: r.Model, MaxTokens: messagesMaxTokens, Thinking: thinkingOf(r.Parameters), Stream: true,
		Messages: []blockMessage{},
	}
	if r.Parameters.MaxTokens > 0 {
		body.MaxTokens = r.Parameters.MaxTokens
	}
	if r.Parameters.Effort != "" {
		body.OutputConfig = &outputConfig{r.Parameters.Effort}
	}
	for _, t := range r.Tools {
		schema := t.Schema
		switch {
		case len(schema) == 0:
			schema = json.RawMessage(`{"type":"object"}`)
		case !json.Valid(schema):
			return nil, fmt.Errorf("the schema of tool %q is not JSON", t.Name)
		}
		body.ToolChoice = &toolChoice{"auto"}
		body.Tools = append(body.Tools, messagesTool{t.Name, t.Description, schema})
	}
	if strings.TrimSpace(r.System) != "" {
		body.System = []block{{Type: blockText, Text: r.System}}
	}
	var err error
	if body.Messages, err = renderBlocks(r.Messages, r.Parameters.ReturnReasoning); err != nil {
		return nil, err
	}
	return encode(body)
}

// renderBlocks puts what one role says in a row into one message, because roles
// must alternate, and sets the two breakpoints: at the end, for the next request
// to find, and where the request ended whose answer is the last one, for this one
// to find. The endpoint looks back no more than 20 blocks from a breakpoint, and
// one step may add more than that.
func renderBlocks(messages []Message, reasoning bool) ([]blockMessage, error) {
	var out []blockMessage
	var last, before *block
	for i := range messages {
		m := &messages[i]
		role, blocks, err := blocksOf(m, reasoning)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		n := len(out)
		if m.Role == Assistant && n > 0 && out[n-1].Role == string(User) {
			before = last
		}
		switch {
		case len(blocks) == 0:
			continue
		case n > 0 && out[n-1].Role == role:
			out[n-1].Content = append(out[n-1].Content, blocks...)
		default:
			out = append(out, blockMessage{role, blocks})
		}
		last = blocks[len(blocks)-1]
	}
	for _, b := range []*block{before, last} {
		if b != nil && b.Type != blockThinking && b.Type != blockRedacted { // which take none
			b.CacheControl = &cacheControl{"ephemeral"}
		}
	}
	return append([]blockMessage{}, out...), nil
}

func blocksOf(m *Message, reasoning bool) (role string, blocks []*block, err error) {
	switch m.Role {
	case User:
		text := m.Content
		if blank(text) {
			text = "(empty)" // the API refuses a blank text
		}
		return string(User), []*block{{Type: blockText, Text: text}}, nil
	case Tool:
		if m.ToolCallID == "" {
			return "", nil, fmt.Errorf("a tool's answer names no call")
		}
		return string(User), []*block{{Type: blockResult, ToolUseID: m.ToolCallID, Content: m.Content}}, nil
	case Assistant:
		if blocks, ok := asItCame(m); ok {
			return string(Assistant), blocks, nil
		}
		if reasoning && m.Reasoning != "" {
			blocks = append(blocks, &block{Type: blockThinking, Thinking: &m.Reasoning, Signature: new("")})
		}
		if !blank(m.Content) {
			blocks = append(blocks, &block{Type: blockText, Text: m.Content})
		}
		for _, c := range m.ToolCalls {
			blocks = append(blocks, toolUse(c))
		}
		return string(Assistant), blocks, nil
	default:
		return "", nil, fmt.Errorf("unknown role %q", m.Role)
	}
}

// asItCame renders an answer by its state: signed thinking must go back unchanged
// and in its place. A state that does not fit the answer was another provider's.
func asItCame(m *Message) (blocks []*block, ok bool) {
	var state []answerBlock
	if len(m.ReasoningState) == 0 || json.Unmarshal(m.ReasoningState, &state) != nil {
		return nil, false
	}
	content, thoughts, calls := m.Content, m.Reasoning, m.ToolCalls
	for _, s := range state {
		b := &block{Type: s.Type}
		switch s.Type {
		case blockText:
			if b.Text, content, ok = cut(content, s.Bytes); !ok {
				return nil, false
			}
			if blank(b.Text) {
				continue
			}
		case blockThinking:
			var text string
			if text, thoughts, ok = cut(thoughts, s.Bytes); !ok {
				return nil, false
			}
			b.Thinking, b.Signature = &text, &s.Signature
		case blockRedacted:
			b.Data = s.Data
		case blockToolUse:
			if len(calls) == 0 {
				return nil, false
			}
			b, calls = toolUse(calls[0]), calls[1:]
		default:
			return nil, false
		}
		blocks = append(blocks, b)
	}
	return blocks, content == "" && thoughts == "" && len(calls) == 0
}

func cut(s string, n int) (before, after string, ok bool) {
	if n < 0 || n > len(s) {
		return "", "", false
	}
	return s[:n], s[n:], true
}

// toolUse renders a call. The API wants an object where the model may have
// written anything: what is none goes back as a string in one.
func toolUse(c ToolCall) *block {
	input := json.RawMessage(strings.TrimSpace(c.Arguments))
	switch {
	case len(input) == 0:
		input = json.RawMessage(`{}`)
	case input[0] != '{' || !json.Valid(input):
		input, _ = encode(map[string]string{"invalid_arguments": c.Arguments}) // a map of strings always encodes
	}
	return &block{Type: blockToolUse, ID: c.ID, Name: c.Name, Input: input}
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
