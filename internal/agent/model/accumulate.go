// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
)

// accumulator turns chunks into one answer. It trusts no index and no length.
type accumulator struct {
	at        endpoint
	content   strings.Builder
	reasoning strings.Builder
	calls     []*partialCall
	byIndex   map[int64]*partialCall
	finish    string
	usage     Usage
}

type partialCall struct {
	id, name  string
	arguments strings.Builder
}

// add takes one chunk and returns what it adds.
func (a *accumulator) add(chunk *openai.ChatCompletionChunk) (Delta, error) {
	if chunk.JSON.Usage.Valid() {
		a.usage = usageOf(&chunk.Usage)
	}
	var d Delta
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		if choice.Index != 0 {
			continue
		}
		content := choice.Delta.Content + choice.Delta.Refusal
		reasoning := text(choice.Delta.JSON.ExtraFields, "reasoning_content", "reasoning")
		if a.content.Len()+a.reasoning.Len()+len(content)+len(reasoning) > maxAnswer {
			return d, errorf(TooLarge, "the model's answer is longer than %d MiB: check the model, or limit its tokens", maxAnswer>>20)
		}
		a.content.WriteString(content)
		a.reasoning.WriteString(reasoning)
		d.Content += valid(content)
		d.Reasoning += valid(reasoning)
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

func (a *accumulator) addCall(piece *openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	call := a.byIndex[piece.Index]
	// Some servers number every call 0 and tell them apart by ID alone.
	if call == nil || piece.ID != "" && call.id != "" && piece.ID != call.id {
		if len(a.calls) == maxCalls {
			return errorf(TooLarge, "the model calls more than %d tools at once: check the model", maxCalls)
		}
		call = &partialCall{}
		a.calls = append(a.calls, call)
		a.byIndex[piece.Index] = call
	}
	if call.id == "" {
		call.id = piece.ID
	}
	// A name may come in pieces, or whole with each piece.
	if name := piece.Function.Name; name != call.name {
		call.name += name
	}
	if len(call.id) > maxName || len(call.name) > maxName {
		return errorf(TooLarge, "the model calls a tool with a name or ID of more than %d bytes: check the model", maxName)
	}
	if call.arguments.Len()+len(piece.Function.Arguments) > maxArguments {
		return errorf(TooLarge, "the model calls a tool with more than %d MiB of arguments: check the model", maxArguments>>20)
	}
	call.arguments.WriteString(piece.Function.Arguments)
	return nil
}

// answer is what came, if it is complete.
func (a *accumulator) answer() (*Answer, error) {
	if a.finish == "" {
		return nil, errorf(BrokenStream, "the model endpoint %s ended the stream before the answer was complete: try again, or check proxies in between", a.at)
	}
	out := &Answer{
		Content: valid(a.content.String()), Reasoning: valid(a.reasoning.String()),
		Finish: Finish(valid(a.finish)), Usage: a.usage,
	}
	seen := map[string]bool{}
	for i, c := range a.calls {
		id := valid(c.id)
		if id == "" || seen[id] {
			id = fmt.Sprintf("call_%d", i) // the endpoint gave none, or one twice
			for seen[id] {
				id += "_"
			}
		}
		seen[id] = true
		out.ToolCalls = append(out.ToolCalls, ToolCall{ID: id, Name: valid(c.name), Arguments: valid(c.arguments.String())})
	}
	return out, nil
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

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
