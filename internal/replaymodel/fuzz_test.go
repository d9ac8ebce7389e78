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
