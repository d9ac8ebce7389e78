// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
)

// chatAnswer turns chunks into one answer. It trusts no index and no length.
type chatAnswer struct {
	answerParts
	byIndex map[int64]*partialCall
}

// add takes one chunk and returns what it adds.
func (a *chatAnswer) add(chunk *openai.ChatCompletionChunk) (Delta, error) {
	if chunk.JSON.Usage.Valid() {
		a.usage = usageOf(&chunk.Usage)
	}
	var d Delta
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		if choice.Index != 0 {
			continue
		}
		reasoning := text(choice.Delta.JSON.ExtraFields, "reasoning_content", "reasoning")
		added, err := a.say(choice.Delta.Content+choice.Delta.Refusal, reasoning)
		if err != nil {
			return d, err
		}
		d.Content += added.Content
		d.Reasoning += added.Reasoning
		for j := range choice.Delta.ToolCalls {
			if err := a.addCall(&choice.Delta.ToolCalls[j]); err != nil {
				return d, err
			}
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return d, nil
}

func (a *chatAnswer) addCall(piece *openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	call := a.byIndex[piece.Index]
	// Some servers number every call 0 and tell them apart by ID alone.
	if call == nil || piece.ID != "" && call.id != "" && piece.ID != call.id {
		var err error
		if call, err = a.call(); err != nil {
			return err
		}
		a.byIndex[piece.Index] = call
	}
	id, name := "", ""
	if call.id == "" {
		id = piece.ID
	}
	// A name may come in pieces, or whole with each piece.
	if piece.Function.Name != call.name {
		name = piece.Function.Name
	}
	return call.extend(id, name, piece.Function.Arguments)
}

// usageOf sorts both spellings of cached tokens into buckets that do not overlap.
// Numbers that contradict each other never become negative.
func usageOf(u *openai.CompletionUsage) Usage {
	prompt, output := max(u.PromptTokens, 0), max(u.CompletionTokens, 0)
	cached := u.PromptTokensDetails.CachedTokens
	if !u.PromptTokensDetails.JSON.CachedTokens.Valid() {
		cached = number(u.JSON.ExtraFields, "prompt_cache_hit_tokens")
	}
	cached = min(max(cached, 0), prompt)
	return Usage{
		Input: prompt - cached, CachedInput: cached,
		Output: output, Reasoning: min(max(u.CompletionTokensDetails.ReasoningTokens, 0), output),
	}
}

// text returns the first of the extra fields that is a string.
func text(fields map[string]respjson.Field, names ...string) string {
	for _, name := range names {
		var s string
		if f, ok := fields[name]; ok && json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

func number(fields map[string]respjson.Field, name string) int64 {
	var n int64
	if f, ok := fields[name]; ok && json.Unmarshal([]byte(f.Raw()), &n) == nil {
		return n
	}
	return 0
}
