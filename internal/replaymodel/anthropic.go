// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// anthropic is the messages format.
type anthropic struct{}

func (anthropic) name() string { return "anthropic" }

func (anthropic) admit(h http.Header) error {
	if h.Get("Anthropic-Version") == "" {
		return errors.New("the header anthropic-version is missing; send anthropic-version: 2023-06-01")
	}
	return nil
}

// key also takes a bearer token, as the provider does.
func (anthropic) key(h http.Header) string {
	if key := h.Get("X-Api-Key"); key != "" {
		return key
	}
	return openAI{}.key(h)
}

func (anthropic) carryKey(h http.Header, key string) {
	h.Del("Authorization")
	h.Set("X-Api-Key", key)
}

func (anthropic) keyHint() string { return "x-api-key: KEY" }

// path follows the clients of this format, whose base URL has no version in it;
// one that has it is understood, too.
func (anthropic) path(baseURL string) string {
	return strings.TrimSuffix(strings.TrimSuffix(baseURL, "/"), "/v1") + "/v1/messages"
}

// anthropicErrors are the error types by status; what is missing falls to its class.
var anthropicErrors = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusInternalServerError:   "api_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
	529:                              "overloaded_error",
}

func (anthropic) failure(why refusal) object {
	kind, known := anthropicErrors[why.status]
	switch {
	case known:
	case why.status >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": why.message}}
}

func (d anthropic) streamError(why refusal) event {
	return event{name: "error", data: d.failure(why)}
}

func (anthropic) tooLong(promptTokens, window int) refusal {
	return refusal{status: http.StatusBadRequest, code: "context_length_exceeded", message: fmt.Sprintf(
		"prompt is too long: %d tokens > %d maximum", max(promptTokens, window+1), window)}
}

// usage is in buckets that exclude each other: the prompt is the sum of the first three.
func (anthropic) usage(t tokenCount) object {
	return object{
		"input_tokens": t.input, "cache_read_input_tokens": t.cacheRead, "cache_creation_input_tokens": t.cacheWrite,
		"output_tokens": t.output,
	}
}

// anthropicStops translates the finish reasons of a script.
var anthropicStops = map[string]string{
	finishStop: "end_turn", finishToolCalls: "tool_use", finishLength: "max_tokens", finishFilter: "refusal",
}

func (anthropic) stop(a *answer) any {
	switch {
	case a.unfinished:
		return nil
	case a.reply.RawFinish != "":
		return a.reply.RawFinish
	}
	return anthropicStops[a.reply.Finish]
}

func (d anthropic) whole(a *answer) object {
	content := []any{}
	for _, b := range d.blocks(a) {
		block := b.block
		for _, delta := range b.deltas {
			block[delta.field] = delta.text
		}
		if b.tool != nil {
			block["input"] = whollyInput(b.tool.arguments)
		}
		content = append(content, block)
	}
	m := d.message(a)
	m["content"], m["stop_reason"] = content, d.stop(a)
	return m
}

func (d anthropic) message(a *answer) object {
	return object{
		"id": a.orDerived(a.reply.ID, "msg_", 0), "type": "message", "role": roleAssistant, "model": a.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": d.usage(a.tokens),
	}
}

// whollyInput is a tool's input where it cannot come in pieces. Broken arguments
// are no JSON, so they come as a text: of the wrong type, and plainly so.
func whollyInput(arguments string) any {
	if json.Valid([]byte(arguments)) {
		return json.RawMessage(arguments)
	}
	return arguments
}

// anthropicBlock is a content block: as it starts, and what is added to it.
type anthropicBlock struct {
	block  object
	deltas []anthropicDelta
	tool   *toolCall
}

type anthropicDelta struct{ kind, field, text string }

func (anthropic) blocks(a *answer) (out []anthropicBlock) {
	if a.reply.Reasoning != "" {
		signature := a.orDerived(a.reply.Signature, "sig_", 0)
		out = append(out, anthropicBlock{
			block: object{"type": "thinking", "thinking": "", "signature": ""},
			deltas: []anthropicDelta{
				{"thinking_delta", "thinking", a.reply.Reasoning}, {"signature_delta", "signature", signature},
			},
		})
	}
	if a.reply.Text != "" {
		out = append(out, anthropicBlock{
			block:  object{"type": "text", "text": ""},
			deltas: []anthropicDelta{{"text_delta", "text", a.reply.Text}},
		})
	}
	for i := range a.reply.ToolCalls {
		c := &a.reply.ToolCalls[i]
		out = append(out, anthropicBlock{
			block: object{"type": "tool_use", "id": a.orDerived(c.ID, "toolu_", i), "name": c.Name, "input": object{}},
			tool:  c,
		})
	}
	return out
}

// steps are the deltas in which a block is streamed. A signature comes in one.
func (b *anthropicBlock) steps() iter.Seq[object] {
	return func(yield func(object) bool) {
		for _, d := range b.deltas {
			if d.field == "signature" {
				if !yield(object{"type": d.kind, d.field: d.text}) {
					return
				}
				continue
			}
			for s := range pieces(d.text) {
				if !yield(object{"type": d.kind, d.field: s}) {
					return
				}
			}
		}
		if b.tool == nil {
			return
		}
		for s := range pieces(b.tool.arguments) {
			if !yield(object{"type": "input_json_delta", "partial_json": s}) {
				return
			}
		}
	}
}

func (d anthropic) events(a *answer) iter.Seq[event] {
	return func(yield func(event) bool) {
		start := d.message(a)
		start["usage"].(object)["output_tokens"] = min(1, a.tokens.output)
		if !yield(named("message_start", object{"message": start})) || !yield(named("ping", object{})) {
			return
		}
		for i, b := range d.blocks(a) {
			if !yield(named("content_block_start", object{"index": i, "content_block": b.block})) {
				return
			}
			for delta := range b.steps() {
				if !yield(named("content_block_delta", object{"index": i, "delta": delta})) {
					return
				}
			}
			if !yield(named("content_block_stop", object{"index": i})) {
				return
			}
		}
		end := named("message_delta", object{
			"delta": object{"stop_reason": d.stop(a), "stop_sequence": nil}, "usage": d.usage(a.tokens),
		})
		end.finishes = true
		if yield(end) {
			yield(named("message_stop", object{}))
		}
	}
}

// named is an event whose data repeats its name as its type.
func named(name string, data object) event {
	data["type"] = name
	return event{name: name, data: data}
}

func (d anthropic) endless(a *answer, of string) iter.Seq[event] {
	index := len(d.blocks(a))
	block, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": filler}
	switch of {
	case endlessReasoning:
		block, delta = object{"type": "thinking", "thinking": "", "signature": ""}, object{"type": "thinking_delta", "thinking": filler}
	case endlessArguments:
		block = object{"type": "tool_use", "id": a.id("toolu_", index), "name": endlessTool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": filler}
	}
	return func(yield func(event) bool) {
		if !yield(named("content_block_start", object{"index": index, "content_block": block})) {
			return
		}
		for yield(named("content_block_delta", object{"index": index, "delta": delta})) {
		}
	}
}
