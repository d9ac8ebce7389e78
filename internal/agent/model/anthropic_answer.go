// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// maxBlocks bounds the content blocks of one answer.
const maxBlocks = 1024

// messageAnswer turns events into one answer. It trusts no index and no length.
type messageAnswer struct {
	answerParts
	blocks  []*messageBlock
	byIndex map[int64]*messageBlock
}

// messageBlock is a content block in the making.
type messageBlock struct {
	answerBlock
	call  *partialCall
	input string // that came whole with its start
}

// answerBlock says where a block of an answer stood, for the answer to go back as
// it came. Its text is in the answer's content or reasoning, its call among the
// answer's calls, each in the same order.
type answerBlock struct {
	Type      string `json:"type"`
	Bytes     int    `json:"bytes,omitempty"`     // of its text
	Signature string `json:"signature,omitempty"` // of thinking
	Data      string `json:"data,omitempty"`      // of redacted_thinking
}

// The types of content blocks.
const (
	blockText     = "text"
	blockThinking = "thinking"
	blockRedacted = "redacted_thinking"
	blockToolUse  = "tool_use"
	blockResult   = "tool_result"
)

// add takes one event and returns what it adds. Events and blocks that are not
// known add nothing: the API says that it will have new ones.
func (a *messageAnswer) add(e *anthropic.MessageStreamEventUnion) (Delta, error) {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		a.count(u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
	case "content_block_start":
		return a.start(e)
	case "content_block_delta":
		return a.extend(e)
	case "message_delta":
		a.end(e)
	}
	return Delta{}, nil
}

func (a *messageAnswer) start(e *anthropic.MessageStreamEventUnion) (Delta, error) {
	from := &e.ContentBlock
	if len(a.blocks) == maxBlocks {
		return Delta{}, errorf(TooLarge, "the model's answer has more than %d parts: check the model", maxBlocks)
	}
	b := &messageBlock{answerBlock: answerBlock{Type: from.Type}}
	a.blocks = append(a.blocks, b)
	a.byIndex[e.Index] = b
	switch from.Type {
	case blockText:
		return a.grow(b, from.Text, "")
	case blockThinking:
		d, err := a.grow(b, "", from.Thinking)
		if err != nil {
			return d, err
		}
		return d, a.sign(b, from.Signature, "")
	case blockRedacted:
		return Delta{}, a.sign(b, "", from.Data)
	case blockToolUse:
		var err error
		if b.call, err = a.call(); err != nil {
			return Delta{}, err
		}
		if b.input = from.JSON.Input.Raw(); len(b.input) > maxArguments {
			return Delta{}, b.call.extend("", "", b.input) // says what is too long
		}
		return Delta{}, b.call.extend(from.ID, from.Name, "")
	}
	return Delta{}, nil
}

// extend adds a delta to its block, if the two fit together.
func (a *messageAnswer) extend(e *anthropic.MessageStreamEventUnion) (Delta, error) {
	b := a.byIndex[e.Index]
	if b == nil {
		return Delta{}, nil
	}
	switch {
	case e.Delta.Type == "text_delta" && b.Type == blockText:
		return a.grow(b, e.Delta.Text, "")
	case e.Delta.Type == "thinking_delta" && b.Type == blockThinking:
		return a.grow(b, "", e.Delta.Thinking)
	case e.Delta.Type == "signature_delta" && b.Type == blockThinking:
		return Delta{}, a.sign(b, e.Delta.Signature, "")
	case e.Delta.Type == "input_json_delta" && b.call != nil:
		return Delta{}, b.call.extend("", "", e.Delta.PartialJSON)
	}
	return Delta{}, nil
}

// grow adds text to a block. What is not UTF-8 is mended at once: the lengths of
// blocks are those of what is kept.
func (a *messageAnswer) grow(b *messageBlock, content, reasoning string) (Delta, error) {
	d, err := a.say(valid(content), valid(reasoning))
	b.Bytes += len(d.Content) + len(d.Reasoning)
	return d, err
}

func (a *messageAnswer) sign(b *messageBlock, signature, data string) error {
	if err := a.fits(len(signature) + len(data)); err != nil {
		return err
	}
	a.other += len(signature) + len(data)
	b.Signature += valid(signature)
	b.Data += valid(data)
	return nil
}

func (a *messageAnswer) end(e *anthropic.MessageStreamEventUnion) {
	u := &e.Usage
	input, created, read := u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens
	if !u.JSON.InputTokens.Valid() { // an older server counts the prompt in the first event only
		input, created, read = a.usage.Input, 0, a.usage.CachedInput
	} else if !u.JSON.CacheReadInputTokens.Valid() {
		created, read = max(a.usage.Input-input, 0), a.usage.CachedInput
	}
	if e.JSON.Usage.Valid() {
		a.count(input, created, read, u.OutputTokens, u.OutputTokensDetails.ThinkingTokens)
	}
	if e.Delta.StopReason != "" {
		a.finish = string(finishOf(e.Delta.StopReason))
	}
}

// count sorts tokens into buckets that do not overlap. What is written to the
// cache was read by the model, so it is input.
func (a *messageAnswer) count(input, created, read, output, thinking int64) {
	output = max(output, 0)
	a.usage = Usage{
		Input: max(input, 0) + max(created, 0), CachedInput: max(read, 0),
		Output: output, Reasoning: min(max(thinking, 0), output),
	}
}

// finishOf says a stop reason in the loop's words.
func finishOf(r anthropic.StopReason) Finish {
	switch r {
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence:
		return FinishStop
	case anthropic.StopReasonToolUse:
		return FinishToolCalls
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return FinishLength // both cut the answer where it stood
	default:
		return Finish(r)
	}
}

// answer is what came, if it is complete, with what has to go back.
func (a *messageAnswer) answer() (*Answer, error) {
	for _, b := range a.blocks {
		// A call without arguments streams none, and its start says {}.
		if b.call != nil && b.call.arguments.Len() == 0 {
			b.call.arguments.WriteString(b.input)
		}
	}
	out, err := a.answerParts.answer()
	if err != nil {
		return nil, err
	}
	out.ReasoningState, err = a.state()
	return out, err
}

// state is nil unless something in the answer can only go back as it came.
func (a *messageAnswer) state() (json.RawMessage, error) {
	var blocks []answerBlock
	signed := false
	for _, b := range a.blocks {
		switch b.Type {
		case blockText, blockThinking, blockRedacted, blockToolUse:
			blocks = append(blocks, b.answerBlock)
			signed = signed || b.Signature != "" || b.Data != ""
		}
	}
	if !signed {
		return nil, nil
	}
	return encode(blocks)
}
