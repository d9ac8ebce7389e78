// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// openAI is the chat-completions format.
type openAI struct{}

func (openAI) name() string { return "openai" }

func (openAI) admit(http.Header) error { return nil }

func (openAI) decode(body []byte, snapshotTag string) (*request, error) {
	return decodeRequest(body, snapshotTag)
}

func (openAI) key(h http.Header) string {
	key, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return key
}

func (openAI) carryKey(h http.Header, key string) {
	h.Del("X-Api-Key")
	h.Set("Authorization", "Bearer "+key)
}

func (openAI) keyHint() string { return "Authorization: Bearer KEY" }

// path follows the clients of this format, whose base URL has the version in it.
func (openAI) path(baseURL string) string {
	return strings.TrimSuffix(baseURL, "/") + "/chat/completions"
}

func (openAI) failure(why refusal) object {
	kind := "invalid_request_error"
	switch {
	case why.status == http.StatusUnauthorized:
		kind = "authentication_error"
	case why.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case why.status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	out := object{"message": why.message, "type": kind, "param": nil, "code": why.code}
	if why.code == "" {
		out["code"] = nil
	}
	return object{"error": out}
}

func (d openAI) streamError(why refusal) event { return event{data: d.failure(why)} }

func (openAI) tooLong(promptTokens, window int) refusal {
	return refusal{status: http.StatusBadRequest, code: "context_length_exceeded", message: fmt.Sprintf(
		"the maximum context length of this model is %d tokens, but the messages have %d; shorten them", window, max(promptTokens, window+1))}
}

// openAIUsage carries the cached tokens in both spellings that providers use.
type openAIUsage struct {
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

func (openAI) usage(t tokenCount) (u openAIUsage) {
	u.PromptTokens = t.input + t.cacheRead + t.cacheWrite
	u.PromptTokensDetails.CachedTokens = t.cacheRead
	u.PromptCacheHitTokens = t.cacheRead
	u.PromptCacheMissTokens = t.input + t.cacheWrite
	u.CompletionTokensDetails.ReasoningTokens = t.reasoning
	u.CompletionTokens = t.output
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// envelope is what chunks and whole answers share. Created is fixed: the answer
// depends on the request, not on the clock.
func (openAI) envelope(a *answer, kind string, choices ...any) object {
	if choices == nil {
		choices = []any{}
	}
	return object{
		"id": a.orDerived(a.reply.ID, "chatcmpl-", 0), "object": kind, "created": 0, "model": a.model, "choices": choices,
	}
}

func (openAI) finish(a *answer) any {
	switch {
	case a.unfinished:
		return nil
	case a.reply.RawFinish != "":
		return a.reply.RawFinish
	}
	return a.reply.Finish
}

func (d openAI) whole(a *answer) object {
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
			"id": a.orDerived(c.ID, "call_", i), "type": "function",
			"function": object{"name": c.Name, "arguments": c.arguments},
		})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := d.envelope(a, "chat.completion", object{"index": 0, "message": m, "finish_reason": d.finish(a)})
	out["usage"] = d.usage(a.tokens)
	return out
}

// events are role, reasoning, text, tool calls, finish reason, and the usage
// where it is asked for.
func (d openAI) events(a *answer) iter.Seq[event] {
	return func(yield func(event) bool) {
		for delta := range d.deltas(a) {
			if !yield(d.chunk(a, delta, nil)) {
				return
			}
		}
		last := d.chunk(a, object{}, d.finish(a))
		last.finishes = true
		if !yield(last) {
			return
		}
		if a.includeUsage {
			usage := d.envelope(a, "chat.completion.chunk")
			usage["usage"] = d.usage(a.tokens)
			if !yield(event{data: usage}) {
				return
			}
		}
		yield(event{text: "[DONE]"})
	}
}

func (d openAI) chunk(a *answer, delta object, finish any) event {
	c := d.envelope(a, "chat.completion.chunk", object{"index": 0, "delta": delta, "finish_reason": finish})
	if a.includeUsage {
		c["usage"] = nil
	}
	return event{data: c}
}

func (d openAI) deltas(a *answer) iter.Seq[object] {
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
			if !yield(openCall(i, a.orDerived(c.ID, "call_", i), c.Name)) {
				return
			}
			for s := range pieces(c.arguments) {
				if !yield(continueCall(i, s)) {
					return
				}
			}
		}
	}
}

func openCall(index int, id, name string) object {
	return object{"tool_calls": []any{object{
		"index": index, "id": id, "type": "function", "function": object{"name": name, "arguments": ""},
	}}}
}

func continueCall(index int, arguments string) object {
	return object{"tool_calls": []any{object{"index": index, "function": object{"arguments": arguments}}}}
}

func (d openAI) endless(a *answer, of string) iter.Seq[event] {
	index := len(a.reply.ToolCalls)
	delta := object{"content": filler}
	switch of {
	case endlessReasoning:
		delta = object{"reasoning_content": filler}
	case endlessArguments:
		delta = continueCall(index, filler)
	}
	return func(yield func(event) bool) {
		if of == endlessArguments && !yield(d.chunk(a, openCall(index, a.id("call_", index), endlessTool), nil)) {
			return
		}
		for yield(d.chunk(a, delta, nil)) {
		}
	}
}
