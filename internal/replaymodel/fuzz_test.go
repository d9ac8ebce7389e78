// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Any body is answered or refused, never a panic. What is understood is kept
// as received: each piece stands in the body, the prefix is made of those pieces,
// and the same body again is known in full.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		chatBody(askWrite, readOnly, callOne, resultOne, writable),
		chatBody(askAgain, callTwo, resultC, resultB, said),
		withTools(`,"stream":true,"stream_options":{"include_usage":true}`, sized("system", "s", 300), sized("user", "u", 300)),
		`{"model":"m","messages":[{"role":"user","content":"\ud800\u003c"}]}`,
		" {\t\"model\" : \"m\" , \"n\" : 12 , \"messages\" : [ {\"role\":\"user\"} ] }\n",
		`{"model":"m","messages":[null]}`, `{"model":"m","messages":[{}],"tools":null}`,
		`{"a":1,"a":2}`, `{1:2}`, `{"model":`, `[]`, `null`, ``, `{"messages":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := New(mustScript(t, sayOK))
		status := func() int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body)))
			return w.Code
		}
		first := status()
		req, err := decodeRequest(body, DefaultSnapshotTag)
		if (err == nil) != (first == http.StatusOK) {
			t.Fatalf("status %d, but decoding says %v", first, err)
		}
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatal("a body that is not JSON was understood")
		}
		size := len(req.raw("model")) + len(req.raw("tools"))
		for _, m := range req.messages {
			if !bytes.Contains(body, m.raw) {
				t.Fatalf("message was re-encoded: %s", m.raw)
			}
			size += len(m.raw)
		}
		if again := status(); again != first {
			t.Fatalf("status %d, then %d", first, again)
		}
		r := lastRecord(s)
		if r.PromptBytes != size || r.NewBytes != 0 || r.CachedTokens != size/blockBytes*blockTokens || r.UncachedTokens < 0 {
			t.Fatalf("the same request again: %+v, prefix %d bytes", r, size)
		}
	})
}

// The same holds for the messages format; what a breakpoint leaves behind is
// JSON as received, and stripping it again changes nothing.
func FuzzDecodeMessages(f *testing.F) {
	use := `{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"x","input":{"cache_control":1}}]}`
	for _, seed := range []string{
		messagesBody(`"stream":true,"system":[`+textOf("s", 300, true)+`],`, turnOf(user, textOf("go", 300, true))),
		messagesBody(`"system":"brief","tools":[{"name":"x","input_schema":{},"cache_control":{"type":"ephemeral"}}],`, askWrite, use,
			turnOf(user, `{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r","cache_control":{}}]}`, textOf(DefaultSnapshotTag, 100, false))),
		messagesBody("", turnOf(user, `{"type":"image","source":{}}`), turnOf(user, `{ "cache_control" : null , "type" : "text" , "text" : "\ud800" }`)),
		messagesBody("", `{"role":"user","content":[{"type":"tool_result","content":["cache_control",3]}]}`),
		messagesBody("", `null`), messagesBody("", `{"role":"user","content":[null]}`), messagesBody(`"tools":null,`, askWrite), messagesBody(`"tools":[7],`, askWrite),
		`{"model":"m","max_tokens":1e3}`, `{"messages":`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := New(mustScript(t, sayOK))
		status := func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/v1/messages", bytes.NewReader(body))
			r.Header.Set("Anthropic-Version", "2023-06-01")
			s.ServeHTTP(w, r)
			return w.Code
		}
		first := status()
		req, err := anthropic{}.decode(body, DefaultSnapshotTag)
		if (err == nil) != (first == http.StatusOK) {
			t.Fatalf("status %d, but decoding says %v", first, err)
		}
		if err != nil {
			return
		}
		plain := !bytes.Contains(body, []byte("cache")) && !bytes.Contains(body, []byte(`\u`))
		size := len(req.raw("model")) + len(req.raw("tools"))
		for _, m := range req.messages {
			if plain && !bytes.Contains(body, m.raw) {
				t.Fatalf("block was re-encoded: %s", m.raw)
			}
			if !json.Valid(m.raw) {
				t.Fatalf("block is no JSON any more: %s", m.raw)
			}
			if m.raw[0] == '{' {
				if again, marked, err := stripMarkers(m.raw); err != nil || marked || !bytes.Equal(again, m.raw) {
					t.Fatalf("stripping again made %s of %s (%t, %v)", again, m.raw, marked, err)
				}
			}
			size += len(m.raw)
		}
		if again := status(); again != first {
			t.Fatalf("status %d, then %d", first, again)
		}
		if r := lastRecord(s); r.PromptBytes != size || r.NewBytes != 0 || r.UncachedTokens < r.CacheWriteTokens || r.CacheWriteTokens < 0 {
			t.Fatalf("the same request again: %+v, prefix %d bytes", r, size)
		}
	})
}

// Whatever an endpoint sends is understood or refused, never a panic, and what is
// understood is a reply that a script can hold.
func FuzzHeard(f *testing.F) {
	for _, seed := range []string{
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"{\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1}]}}]}\n\n", "data: {\"error\":{}}\n\n", "data: null\n\n",
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"a\"}}\n\n",
		"data: {\"type\":\"content_block_start\"}\n\n", "data: {\"type\":\"content_block_delta\",\"index\":9}\n\n",
		`{"content":[null]}`, `{"content":[{"type":"tool_use","id":"a","name":"x"}],"stop_reason":"tool_use"}`,
		`{"choices":[{"message":{"tool_calls":[{"function":{"name":"x"}}]},"finish_reason":"stop"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []dialect{openAI{}, anthropic{}} {
			events := eventData(body)
			streamed, streamErr := d.readStream(events)
			whole, wholeErr := d.readWhole(body)
			for h, err := range map[*heard]error{streamed: streamErr, whole: wholeErr} {
				if err != nil || h.unfinished || h.failed != "" {
					continue
				}
				named := true
				for _, c := range h.reply.ToolCalls {
					named = named && len(bytes.TrimSpace([]byte(c.Name))) > 0
				}
				if err := h.reply.check(); named && err != nil {
					t.Errorf("%s: the reply %+v cannot be in a script: %v", d.name(), h.reply, err)
				}
			}
		}
	})
}
