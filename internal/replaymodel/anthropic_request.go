// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// kindThinking is the kind of a block of reasoning; other blocks that are no
// text have their type as kind.
const kindThinking = "thinking"

// maxBreakpoints is how many cache breakpoints the provider takes.
const maxBreakpoints = 4

// decode turns every content block into a message of its own: neighbouring user
// messages may have been merged by the client or may yet be by the provider, and
// neither rules nor account may depend on it.
func (anthropic) decode(body []byte, snapshotTag string) (*request, error) {
	fields, err := members(body)
	if err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w", err)
	}
	req := &request{breakpoints: true}
	var system, messages json.RawMessage
	maxTokens := 0
	for _, f := range fields {
		switch f.name {
		case "messages":
			messages = f.raw
			continue
		case "system":
			system = f.raw
			continue
		case "model":
			err = json.Unmarshal(f.raw, &req.model)
		case "stream":
			err = json.Unmarshal(f.raw, &req.stream)
		case "max_tokens":
			err = json.Unmarshal(f.raw, &maxTokens)
		case "tools":
			f.raw, req.toolsMarked, err = stripList(f.raw)
		}
		if err != nil {
			return nil, fmt.Errorf("%s has the wrong type: %s", f.name, cut(string(f.raw)))
		}
		req.fields = append(req.fields, f)
	}
	switch {
	case req.model == "":
		return nil, errors.New("model is missing")
	case maxTokens < 1:
		return nil, errors.New("max_tokens is missing; send 1 or more")
	}
	if err := decodeSystem(req, system); err != nil {
		return nil, err
	}
	if err := decodeTurns(req, messages, snapshotTag); err != nil {
		return nil, err
	}
	if n := req.countBreakpoints(); n > maxBreakpoints {
		return nil, fmt.Errorf("%d blocks have %s; at most %d may", n, cacheMarker, maxBreakpoints)
	}
	return req, checkOrder(req.messages)
}

func (r *request) countBreakpoints() (n int) {
	if r.toolsMarked {
		n++
	}
	for _, m := range r.messages {
		if m.marked {
			n++
		}
	}
	return n
}

func decodeSystem(req *request, raw json.RawMessage) error {
	blocks, err := blocksOf(raw)
	if err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for i, b := range blocks {
		m, err := decodeBlock(b, "")
		if err != nil {
			return fmt.Errorf("system[%d]: %w", i, err)
		}
		if m.kind != "text" {
			return fmt.Errorf("system[%d]: type is %q; use text", i, m.kind)
		}
		m.role, m.kind, m.where = roleSystem, roleSystem, fmt.Sprintf("system[%d]", i)
		req.messages = append(req.messages, m)
	}
	return nil
}

func decodeTurns(req *request, raw json.RawMessage, snapshotTag string) error {
	var turns []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &turns) != nil {
		return errors.New("messages must be a list of messages")
	}
	if len(turns) == 0 {
		return errors.New("messages is missing or empty")
	}
	last := ""
	for i, t := range turns {
		switch {
		case t.Role != roleUser && t.Role != roleAssistant:
			return fmt.Errorf("messages[%d]: role is %q; use user or assistant", i, t.Role)
		case i == 0 && t.Role != roleUser:
			return errors.New("messages[0]: the first message must be from user")
		}
		blocks, err := blocksOf(t.Content)
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		if len(blocks) == 0 {
			return fmt.Errorf("messages[%d]: content is missing or empty", i)
		}
		for j, b := range blocks {
			m, err := decodeBlock(b, snapshotTag)
			if err == nil {
				err = m.place(t.Role)
			}
			if err != nil {
				return fmt.Errorf("messages[%d].content[%d]: %w", i, j, err)
			}
			m.where = fmt.Sprintf("messages[%d].content[%d]", i, j)
			m.continues = t.Role == roleAssistant && last == roleAssistant
			last = t.Role
			req.messages = append(req.messages, m)
		}
	}
	return nil
}

// blocksOf lists the blocks of a content; a text is one block, as it stands.
func blocksOf(raw json.RawMessage) ([]json.RawMessage, error) {
	var text string
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	} else if json.Unmarshal(raw, &text) == nil {
		return []json.RawMessage{raw}, nil
	}
	var blocks []json.RawMessage
	if json.Unmarshal(raw, &blocks) != nil {
		return nil, errors.New("content must be a text or a list of blocks")
	}
	return blocks, nil
}

// decodeBlock reads one block; its kind is its type until it is placed.
func decodeBlock(raw json.RawMessage, snapshotTag string) (message, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return textBlock(message{raw: raw, kind: "text", text: text}, snapshotTag)
	}
	var in struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		Signature string          `json:"signature"`
	}
	if err := json.Unmarshal(raw, &in); err != nil || raw[0] != '{' {
		return message{}, fmt.Errorf("no content block: %s", cut(string(raw)))
	}
	m := message{kind: in.Type, text: in.Text}
	var err error
	if m.raw, m.marked, err = stripMarkers(raw); err != nil {
		return message{}, err
	}
	switch in.Type {
	case "":
		return message{}, errors.New("type is missing")
	case "text":
		return textBlock(m, snapshotTag)
	case "tool_use":
		if in.ID == "" || in.Name == "" || len(in.Input) == 0 || in.Input[0] != '{' {
			return message{}, errors.New("a tool_use block needs id, name and input, which is an object")
		}
		m.calls = []string{in.ID}
	case "tool_result":
		if in.ToolUseID == "" {
			return message{}, errors.New("a tool_result block needs tool_use_id")
		}
		m.callID = in.ToolUseID
		m.text, err = contentText(in.Content)
	case kindThinking:
		if in.Signature == "" {
			return message{}, errors.New("a thinking block needs the signature that it came with")
		}
	}
	return m, err
}

func textBlock(m message, snapshotTag string) (message, error) {
	if m.text == "" {
		return m, errors.New("the text is empty; leave the block out")
	}
	if snapshotTag != "" && strings.HasPrefix(m.text, snapshotTag) {
		m.kind = kindSnapshot
	}
	return m, nil
}

// place gives a block the role that it has in the common form.
func (m *message) place(role string) error {
	m.role = role
	switch {
	case m.kind == "tool_result":
		if role != roleUser {
			return errors.New("a tool_result block can only come from user")
		}
		m.role, m.kind = roleTool, roleTool
	case role == roleUser && (m.calls != nil || m.kind == kindThinking):
		return fmt.Errorf("a %s block can only come from assistant", m.kind)
	case m.kind == "text", m.kind == "tool_use":
		m.kind = role
	case m.kind == kindSnapshot && role == roleAssistant:
		m.kind = role
	}
	return nil
}
