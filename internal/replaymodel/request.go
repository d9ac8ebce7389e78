// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The roles and finish reasons of the protocol.
const (
	roleSystem    = "system"
	roleDeveloper = "developer"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"

	finishStop      = "stop"
	finishToolCalls = "tool_calls"
	finishLength    = "length"
	finishFilter    = "content_filter"
)

// kindSnapshot is the kind of a user-role message that is a context snapshot;
// the kind of every other message is its role.
const kindSnapshot = "snapshot"

// request is what the server understood of one body.
type request struct {
	model        string
	fields       []field // all top-level fields but messages (and system, where it is one), as received
	messages     []message
	stream       bool
	includeUsage bool

	breakpoints bool // the provider caches where it is told to, not every block
	toolsMarked bool // with a breakpoint among the tools
}

// field is one member of the body's object, its value as received.
type field struct {
	name string
	raw  json.RawMessage
}

// message is one element of the conversation: its bytes as received (without
// cache breakpoints), and what the rules look at.
type message struct {
	raw       json.RawMessage
	where     string // in the body
	role      string
	kind      string
	text      string
	callID    string   // of a tool message
	calls     []string // ids that an assistant message asks for
	marked    bool     // with a cache breakpoint
	continues bool     // the assistant turn of the message before
}

// decodeRequest reads a body. It is strict about what the account and the rules
// rest on and about the order that providers insist on, and blind to the rest.
func decodeRequest(body []byte, snapshotTag string) (*request, error) {
	fields, err := members(body)
	if err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w", err)
	}
	req := &request{}
	var rawMessages []json.RawMessage
	for _, f := range fields {
		switch f.name {
		case "messages":
			if err := json.Unmarshal(f.raw, &rawMessages); err != nil {
				return nil, errors.New("messages must be a list")
			}
			continue
		case "model":
			err = json.Unmarshal(f.raw, &req.model)
		case "stream":
			err = json.Unmarshal(f.raw, &req.stream)
		case "stream_options":
			err = decodeStreamOptions(f.raw, req)
		}
		if err != nil {
			return nil, fmt.Errorf("%s has the wrong type: %s", f.name, cut(string(f.raw)))
		}
		req.fields = append(req.fields, f)
	}
	if req.model == "" {
		return nil, errors.New("model is missing")
	}
	if len(rawMessages) == 0 {
		return nil, errors.New("messages is missing or empty")
	}
	for i, raw := range rawMessages {
		m, err := decodeMessage(raw, snapshotTag)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		m.where = fmt.Sprintf("messages[%d]", i)
		req.messages = append(req.messages, m)
	}
	return req, checkOrder(req.messages)
}

func decodeStreamOptions(raw json.RawMessage, req *request) error {
	var options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	err := json.Unmarshal(raw, &options)
	req.includeUsage = options.IncludeUsage
	return err
}

// members lists the members of an object in order. A name that occurs twice is
// refused: readers differ on which one counts, and the account must not guess.
func members(data []byte) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil {
		return nil, err
	} else if tok != json.Delim('{') {
		return nil, errors.New("it does not begin with {")
	}
	var out []field
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: fmt.Sprint(tok)}
		if err := dec.Decode(&f.raw); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o field) bool { return o.name == f.name }) {
			return nil, fmt.Errorf("the field %q occurs twice", f.name)
		}
		out = append(out, f)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the closing }")
	}
	return out, nil
}

func decodeMessage(raw json.RawMessage, snapshotTag string) (message, error) {
	var in struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return message{}, fmt.Errorf("no chat message: %w", err)
	}
	text, err := contentText(in.Content)
	if err != nil {
		return message{}, err
	}
	m := message{raw: raw, role: in.Role, kind: in.Role, text: text, callID: in.ToolCallID}
	switch in.Role {
	case roleSystem, roleDeveloper:
	case roleUser:
		if strings.HasPrefix(text, snapshotTag) {
			m.kind = kindSnapshot
		}
	case roleAssistant:
		for _, c := range in.ToolCalls {
			m.calls = append(m.calls, c.ID)
		}
	case roleTool:
		if in.ToolCallID == "" {
			return message{}, errors.New("a tool message needs tool_call_id")
		}
	default:
		return message{}, fmt.Errorf("role is %q; use system, developer, user, assistant or tool", in.Role)
	}
	return m, nil
}

// contentText is the text of a content that is a string or a list of parts.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", errors.New("content must be a text or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String(), nil
}

// checkOrder insists, as providers do, that the results of a step's tool calls
// follow the message that asked for them, each once and nothing in between.
func checkOrder(messages []message) error {
	var open []string
	for _, m := range messages {
		switch {
		case m.role == roleTool:
			at := slices.Index(open, m.callID)
			if at < 0 {
				return fmt.Errorf("%s answers tool call %q, which no directly preceding assistant message asked for", m.where, m.callID)
			}
			open = slices.Delete(open, at, at+1)
		case m.continues:
			open = append(open, m.calls...)
		case len(open) > 0:
			return fmt.Errorf("%s (%s) stands before the result of tool call %q; results must follow their calls directly", m.where, m.kind, open[0])
		default:
			open = slices.Clone(m.calls)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("tool call %q has no result; add one for it", open[0])
	}
	return nil
}

// raw returns a top-level field as received, nil when it is absent.
func (r *request) raw(name string) json.RawMessage {
	for _, f := range r.fields {
		if f.name == name {
			return f.raw
		}
	}
	return nil
}

// cut shortens a text for a message.
func cut(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
