// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// eventData lists the data of the complete events of a stream.
func eventData(body []byte) (out [][]byte) {
	var data []byte
	for line := range bytes.Lines(body) {
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 && data != nil {
			out, data = append(out, data), nil
			continue
		}
		if value, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			if data == nil {
				data = []byte{}
			}
		}
	}
	return out
}

// heardError is the error member that both formats send within a stream.
type heardError struct {
	Message string `json:"message"`
}

func (e *heardError) text() string {
	if e.Message == "" {
		return "the endpoint sent an error within the stream"
	}
	return e.Message
}

// openAIMessage is a message of a whole answer, or the delta of a streamed one.
type openAIMessage struct {
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
	Refusal          string `json:"refusal"`
	ToolCalls        []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type openAIAnswer struct {
	ID      string `json:"id"`
	Choices []struct {
		Message      openAIMessage `json:"message"`
		Delta        openAIMessage `json:"delta"`
		FinishReason string        `json:"finish_reason"`
	} `json:"choices"`
	Error *heardError `json:"error"`
}

// hear adds an answer or a chunk to what was heard.
func (h *heard) hear(in *openAIAnswer) error {
	if in.Error != nil {
		h.failed = in.Error.text()
	}
	if h.reply.ID == "" {
		h.reply.ID = in.ID
	}
	if len(in.Choices) == 0 {
		return nil
	}
	if len(in.Choices) > 1 {
		h.lose("%d choices, only the first is kept", len(in.Choices))
	}
	c := in.Choices[0]
	for _, m := range []openAIMessage{c.Message, c.Delta} {
		h.reply.Text += m.Content
		h.reply.Reasoning += m.ReasoningContent
		if m.ReasoningContent == "" {
			h.reply.Reasoning += m.Reasoning
		}
		if m.Refusal != "" {
			h.lose("a refusal text")
		}
		for i, call := range m.ToolCalls {
			if call.Index != nil {
				i = *call.Index
			}
			to, err := h.call(i)
			if err != nil {
				return err
			}
			to.ID, to.Name = to.ID+call.ID, to.Name+call.Function.Name
			*to.RawArguments += call.Function.Arguments
		}
	}
	if c.FinishReason != "" {
		h.finish(c.FinishReason, c.FinishReason)
	}
	return nil
}

// call returns the tool call with an index, which may be the next one.
func (h *heard) call(index int) (*toolCall, error) {
	if index == len(h.reply.ToolCalls) {
		h.reply.ToolCalls = append(h.reply.ToolCalls, toolCall{RawArguments: new("")})
	}
	if index < 0 || index >= len(h.reply.ToolCalls) {
		return nil, fmt.Errorf("tool call %d comes after %d others", index, len(h.reply.ToolCalls))
	}
	return &h.reply.ToolCalls[index], nil
}

// finish keeps a reason as the script says it if a script can say it of this
// reply, otherwise as it came.
func (h *heard) finish(said, raw string) {
	h.unfinished = false
	h.reply.Finish, h.reply.RawFinish = said, ""
	fits := slices.Contains([]string{finishLength, finishFilter}, said) ||
		(said == finishStop && len(h.reply.ToolCalls) == 0) || (said == finishToolCalls && len(h.reply.ToolCalls) > 0)
	if !fits {
		h.reply.Finish, h.reply.RawFinish = "", raw
	}
}

func (openAI) endMark() []byte { return []byte("\ndata: [DONE]") }

func (openAI) readWhole(body []byte) (*heard, error) {
	h := &heard{unfinished: true}
	var in openAIAnswer
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	return h, h.hear(&in)
}

func (openAI) readStream(events [][]byte) (*heard, error) {
	h := &heard{unfinished: true}
	for i, data := range events {
		if string(data) == "[DONE]" {
			break
		}
		var in openAIAnswer
		if err := json.Unmarshal(data, &in); err != nil {
			return nil, fmt.Errorf("event %d: %w", i+1, err)
		}
		if err := h.hear(&in); err != nil {
			return nil, fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	return h, nil
}

// anthropicHeard is a content block of a whole answer, or one that grows.
type anthropicHeard struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`

	pieces strings.Builder // of the input
}

type anthropicMessage struct {
	ID         string            `json:"id"`
	Content    []*anthropicHeard `json:"content"`
	StopReason string            `json:"stop_reason"`
}

// heard puts the blocks into the order that a reply has: reasoning, text, calls.
func (m *anthropicMessage) heard() *heard {
	h := &heard{unfinished: true}
	h.reply.ID = m.ID
	last := 0
	order := map[string]int{"thinking": 1, "text": 2, "tool_use": 3}
	for i, b := range m.Content {
		at, known := order[b.Type]
		switch {
		case !known:
			h.lose("a %s block is left out", b.Type)
			continue
		case at < last || (at == last && at < 3):
			h.lose("block %d (%s) is joined with the one before it, or moved before others", i, b.Type)
		}
		last = at
		h.reply.Reasoning += b.Thinking
		h.reply.Signature += b.Signature
		h.reply.Text += b.Text
		if b.Type == "tool_use" {
			arguments := b.pieces.String()
			if arguments == "" {
				arguments = string(b.Input)
			}
			h.reply.ToolCalls = append(h.reply.ToolCalls, toolCall{ID: b.ID, Name: b.Name, RawArguments: &arguments})
		}
	}
	if m.StopReason != "" {
		said := ""
		for finish, stop := range anthropicStops {
			if stop == m.StopReason {
				said = finish
			}
		}
		h.finish(said, m.StopReason)
	}
	return h
}

func (anthropic) endMark() []byte { return []byte("\nevent: message_stop") }

func (anthropic) readWhole(body []byte) (*heard, error) {
	var m anthropicMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if slices.Contains(m.Content, nil) {
		return nil, errors.New("a content block is null")
	}
	return m.heard(), nil
}

func (anthropic) readStream(events [][]byte) (*heard, error) {
	var m anthropicMessage
	failed := ""
	for i, data := range events {
		var in struct {
			Type    string           `json:"type"`
			Message anthropicMessage `json:"message"`
			Index   int              `json:"index"`
			Block   *anthropicHeard  `json:"content_block"`
			Delta   struct {
				anthropicHeard
				PartialJSON string `json:"partial_json"`
				StopReason  string `json:"stop_reason"`
			} `json:"delta"`
			Error heardError `json:"error"`
		}
		if err := json.Unmarshal(data, &in); err != nil {
			return nil, fmt.Errorf("event %d: %w", i+1, err)
		}
		switch in.Type {
		case "message_start":
			m.ID = in.Message.ID
		case "content_block_start":
			if in.Block == nil || in.Index != len(m.Content) {
				return nil, fmt.Errorf("event %d: block %d comes after %d others", i+1, in.Index, len(m.Content))
			}
			m.Content = append(m.Content, in.Block)
		case "content_block_delta":
			if in.Index < 0 || in.Index >= len(m.Content) {
				return nil, fmt.Errorf("event %d: there is no block %d", i+1, in.Index)
			}
			b := m.Content[in.Index]
			b.Text, b.Thinking, b.Signature = b.Text+in.Delta.Text, b.Thinking+in.Delta.Thinking, b.Signature+in.Delta.Signature
			b.pieces.WriteString(in.Delta.PartialJSON)
		case "message_delta":
			m.StopReason = in.Delta.StopReason
		case "error":
			failed = in.Error.text()
		}
	}
	h := m.heard()
	h.failed = failed
	return h, nil
}
