// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"unicode/utf8"
)

// usage carries the cached tokens in both spellings that providers use.
type usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	TotalTokens         int `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	PromptCacheHitTokens  int `json:"prompt_cache_hit_tokens"`
	PromptCacheMissTokens int `json:"prompt_cache_miss_tokens"`
}

// answer is a reply with everything that is derived from its request.
type answer struct {
	digest string // of the request's body: all ids come from it
	model  string
	reply  *reply
	usage  usage
}

func answerTo(r Record, model string, p *reply) answer {
	a := answer{digest: r.BodyDigest, model: model, reply: p}
	spoken := len(p.Text)
	for _, c := range p.ToolCalls {
		spoken += len(c.Name) + len(c.arguments)
	}
	u := &a.usage
	u.PromptTokens = r.PromptTokens
	u.PromptTokensDetails.CachedTokens = r.CachedTokens
	u.PromptCacheHitTokens = r.CachedTokens
	u.PromptCacheMissTokens = r.UncachedTokens
	u.CompletionTokensDetails.ReasoningTokens = tokens(len(p.Reasoning))
	u.CompletionTokens = tokens(spoken) + u.CompletionTokensDetails.ReasoningTokens
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return a
}

// id derives an identifier from the request, so that a repeated request is
// answered with the same bytes.
func (a *answer) id(prefix string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", a.digest, prefix, index))
	return prefix + hex.EncodeToString(sum[:12])
}

type object = map[string]any

// envelope is what chunks and whole answers share. Created is fixed: the answer
// depends on the request, not on the clock.
func (a *answer) envelope(kind string, choices []any) object {
	return object{"id": a.id("chatcmpl-", 0), "object": kind, "created": 0, "model": a.model, "choices": choices}
}

// whole is the answer to a request that did not ask for a stream.
func (a *answer) whole() object {
	m := object{"role": roleAssistant, "content": nil}
	if a.reply.Text != "" {
		m["content"] = a.reply.Text
	}
	if a.reply.Reasoning != "" {
		m["reasoning_content"] = a.reply.Reasoning
	}
	var calls []any
	for i, c := range a.reply.ToolCalls {
		calls = append(calls, object{
			"id": a.id("call_", i), "type": "function",
			"function": object{"name": c.Name, "arguments": c.arguments},
		})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := a.envelope("chat.completion", []any{object{"index": 0, "message": m, "finish_reason": a.reply.Finish}})
	out["usage"] = a.usage
	return out
}

// chunks is the answer as a stream: role, reasoning, text, tool calls, finish
// reason, and the usage where it is asked for.
func (a *answer) chunks(includeUsage bool) iter.Seq[object] {
	return func(yield func(object) bool) {
		send := func(delta object, finish any) bool {
			c := a.envelope("chat.completion.chunk", []any{object{"index": 0, "delta": delta, "finish_reason": finish}})
			if includeUsage {
				c["usage"] = nil
			}
			return yield(c)
		}
		for delta := range a.deltas() {
			if !send(delta, nil) {
				return
			}
		}
		if !send(object{}, a.reply.Finish) || !includeUsage {
			return
		}
		last := a.envelope("chat.completion.chunk", []any{})
		last["usage"] = a.usage
		yield(last)
	}
}

func (a *answer) deltas() iter.Seq[object] {
	return func(yield func(object) bool) {
		if !yield(object{"role": roleAssistant, "content": ""}) {
			return
		}
		for s := range pieces(a.reply.Reasoning) {
			if !yield(object{"reasoning_content": s}) {
				return
			}
		}
		for s := range pieces(a.reply.Text) {
			if !yield(object{"content": s}) {
				return
			}
		}
		for i, c := range a.reply.ToolCalls {
			call := func(rest object) object {
				rest["index"] = i
				return object{"tool_calls": []any{rest}}
			}
			opening := object{"id": a.id("call_", i), "type": "function", "function": object{"name": c.Name, "arguments": ""}}
			if !yield(call(opening)) {
				return
			}
			for s := range pieces(c.arguments) {
				if !yield(call(object{"function": object{"arguments": s}})) {
					return
				}
			}
		}
	}
}

// pieces cuts a text at character boundaries, into about 16 bytes each, more
// where that would give more than some 200 pieces.
func pieces(s string) iter.Seq[string] {
	size := max(16, len(s)/200)
	return func(yield func(string) bool) {
		for s != "" {
			end := min(size, len(s))
			for end < len(s) && !utf8.RuneStart(s[end]) {
				end++
			}
			if !yield(s[:end]) {
				return
			}
			s = s[end:]
		}
	}
}

// writeStream sends the chunks as server-sent events, each flushed, until the
// client goes away.
func (a *answer) writeStream(w http.ResponseWriter, includeUsage bool) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	event := func(data []byte) error {
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return err
		}
		return flush()
	}
	for c := range a.chunks(includeUsage) {
		data, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encoding a chunk: %w", err)
		}
		if err := event(data); err != nil {
			return err
		}
	}
	return event([]byte("[DONE]"))
}
