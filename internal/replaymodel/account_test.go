// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	modelRaw = `"m"`                   // 3 bytes
	toolsRaw = `[{"type":"function"}]` // 21 bytes
)

// sized is a message of exactly n bytes.
func sized(role, content string, n int) string {
	m := fmt.Sprintf(`{"role":%q,"content":%q}`, role, content)
	return strings.Replace(m, `"}`, strings.Repeat("x", n-len(m))+`"}`, 1)
}

func withTools(params string, messages ...string) string {
	return `{"model":` + modelRaw + params + `,"messages":[` + strings.Join(messages, " ,\n") + `],"tools": ` + toolsRaw + `}`
}

func lastRecord(s *Server) Record { r := s.Requests(); return r[len(r)-1] }

func mustAnswer(t *testing.T, s *Server, body string) Record {
	t.Helper()
	if status, answer := post(t, s, body); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, answer)
	}
	return lastRecord(s)
}

// A history that only grows costs what was appended: exactly so in bytes, and
// but for the part of a block in tokens.
func TestAppendOnlyHistory(t *testing.T) {
	s := New(mustScript(t, sayOK))
	system, user := sized("system", "be brief", 400), sized("user", "go", 100)
	first := mustAnswer(t, s, withTools("", system, user))
	if first.PromptBytes != 524 || first.PromptTokens != 131 || first.CachedTokens != 0 || first.UncachedTokens != 131 ||
		first.CommonPrefixBytes != 0 || first.NewBytes != 524 || len(first.NewMessages) != 2 {
		t.Errorf("first request: %+v", first)
	}

	answer := sized("assistant", "ok", 301)
	snapshot := sized("user", DefaultSnapshotTag+" a", 203)
	next := sized("user", "again", 50)
	second := mustAnswer(t, s, withTools("", system, user, answer, snapshot, next))
	// 524 bytes were there, of them 2 full blocks (512 bytes, 128 tokens); 554 came.
	if second.PromptBytes != 1078 || second.PromptTokens != 270 || second.CachedTokens != 128 || second.UncachedTokens != 142 ||
		second.CommonPrefixBytes != 524 || second.NewBytes != 554 || second.Snapshots != 1 || !strings.HasPrefix(second.LastSnapshot, DefaultSnapshotTag) {
		t.Errorf("second request: %+v", second)
	}
	want := []NewMessage{
		{Index: 2, Role: "assistant", Kind: "assistant", Bytes: 301, NewBytes: 301},
		{Index: 3, Role: "user", Kind: "snapshot", Bytes: 203, NewBytes: 203},
		{Index: 4, Role: "user", Kind: "user", Bytes: 50, NewBytes: 50},
	}
	if diff := cmp.Diff(want, second.NewMessages); diff != "" {
		t.Errorf("new messages (-want +got):\n%s", diff)
	}

	retry := mustAnswer(t, s, withTools("", system, user, answer, snapshot, next))
	if retry.NewBytes != 0 || retry.NewMessages != nil || retry.CachedTokens != 4*64 || retry.UncachedTokens != 14 {
		t.Errorf("the same request again: %+v", retry)
	}
	for _, r := range []Record{second, retry} {
		if r.HeaderDigest != first.HeaderDigest || r.Conversation != first.Conversation {
			t.Errorf("request %d: header or conversation changed", r.N)
		}
	}
}

// The account sees what a change at each place costs, and whether it touched the header.
func TestWhatAChangeCosts(t *testing.T) {
	system, user, answer := sized("system", "be brief", 400), sized("user", "go", 600), sized("assistant", "ok", 500)
	base := withTools(`,"temperature":0`, system, user, answer)
	stream := modelRaw + toolsRaw + system + user + answer
	bent := strings.Replace(user, `xx"}`, `xy"}`, 1) // differs 3 bytes before its end
	for name, tc := range map[string]struct {
		body                string
		cached, common, new int
		sameHeader          bool
	}{
		"nothing":               {base, 1524 / 256 * 64, 1524, 0, true},
		"the spelling of space": {strings.ReplaceAll(base, " ,\n", ","), 1524 / 256 * 64, 1524, 0, true},
		"a system message":      {withTools(`,"temperature":0`, sized("system", "be quick", 400), user, answer), 0, 0, 1524, false},
		"a message in the middle": {
			withTools(`,"temperature":0`, system, user, sized("assistant", "no", 500)),
			(24 + 1000) / 256 * 64, 1024 + len(`{"role":"assistant","content":"`), 500 - len(`{"role":"assistant","content":"`), true,
		},
		// Another first user message is another conversation; the blocks before it are still warm.
		"the first user message": {withTools(`,"temperature":0`, system, bent, answer), (1024 - 3) / 256 * 64, 0, 1524, true},
		"a parameter":            {withTools(`,"temperature":1`, system, user, answer), 1524 / 256 * 64, 1524, 0, false},
		"a new parameter":        {withTools(`,"temperature":0,"seed":1`, system, user, answer), 1524 / 256 * 64, 1524, 0, false},
		"streaming is no parameter of the header": {
			withTools(`,"temperature":0,"stream":true,"stream_options":{"include_usage":true}`, system, user, answer), 1524 / 256 * 64, 1524, 0, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(mustScript(t, sayOK))
			first := mustAnswer(t, s, base)
			if first.PromptBytes != len(stream) || len(stream) != 1524 {
				t.Fatalf("the prefix has %d bytes, want %d", first.PromptBytes, len(stream))
			}
			r := mustAnswer(t, s, tc.body)
			got := []int{r.CachedTokens, r.CommonPrefixBytes, r.NewBytes}
			if diff := cmp.Diff([]int{tc.cached, tc.common, tc.new}, got); diff != "" {
				t.Errorf("cached tokens, common bytes, new bytes (-want +got):\n%s", diff)
			}
			if (r.HeaderDigest == first.HeaderDigest) != tc.sameHeader {
				t.Errorf("header digest equal: %t, want %t", !tc.sameHeader, tc.sameHeader)
			}
		})
	}
}

// A request that was refused is on record, but warms nothing.
func TestRefusedRequestsWarmNoCache(t *testing.T) {
	s := New(mustScript(t, "version: 1\nrules: [{when: {}, require: {request: {mustNotContain: [bad]}}, reply: {text: ok}}]"))
	user := sized("user", "go", 600)
	if status, _ := post(t, s, withTools("", user, sized("user", "bad", 300))); status != http.StatusBadRequest {
		t.Fatalf("status %d", status)
	}
	if r := mustAnswer(t, s, withTools("", user)); r.N != 2 || r.CachedTokens != 0 || r.CommonPrefixBytes != 0 {
		t.Errorf("after a refused request: %+v", r)
	}
}

// Memory is bounded; what was forgotten says so, and the rest keeps its numbers.
func TestBoundedMemory(t *testing.T) {
	s := New(mustScript(t, sayOK), WithLimits(Limits{Requests: 2, Bytes: 1 << 20, Blocks: 2}))
	bodies := []string{chatBody(sized("user", "1", 900)), chatBody(sized("user", "2", 901)), chatBody(sized("user", "3", 902))}
	for _, b := range bodies {
		mustAnswer(t, s, b)
	}
	if got := len(s.history.cache.elements); got != 2 {
		t.Errorf("%d blocks remembered, want 2", got)
	}
	// Of the last request the *leading* blocks are the ones that were kept.
	if r := mustAnswer(t, s, bodies[2]); r.CachedTokens != 128 {
		t.Errorf("cached %d, want 128", r.CachedTokens)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	for n, want := range map[string]int{"2": 410, "3": 200, "4": 200, "5": 404, "0": 404, "x": 400} {
		resp, err := http.Get(server.URL + "/requests/" + n + "/body")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("body of request %s: status %d, want %d", n, resp.StatusCode, want)
		}
	}
	if body, ok := s.Body(3); !ok || string(body) != bodies[2] {
		t.Errorf("the body is not what was sent: %s", body)
	}

	tight := New(mustScript(t, sayOK), WithLimits(Limits{Requests: 9, Bytes: 2500, Blocks: 9}))
	for _, b := range bodies {
		mustAnswer(t, tight, b)
	}
	if got := len(tight.Requests()); got != 1 {
		t.Errorf("%d requests kept in 2500 bytes, want 1 (two copies of 900 bytes each)", got)
	}
}

// GET /requests is JSON with the newest last.
func TestRequestsOverHTTP(t *testing.T) {
	s := New(mustScript(t, sayOK))
	server := httptest.NewServer(s)
	defer server.Close()
	list := func() (out []Record) {
		resp, err := http.Get(server.URL + "/requests")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := list(); got == nil || len(got) != 0 {
		t.Errorf("before any request: %v, want an empty list", got)
	}
	mustAnswer(t, s, chatBody(askWrite))
	mustAnswer(t, s, chatBody(askWrite, readOnly))
	got := list()
	numbers := []int{}
	for _, r := range got {
		numbers = append(numbers, r.N)
	}
	if !slices.Equal(numbers, []int{1, 2}) {
		t.Fatalf("numbers %v", numbers)
	}
	if diff := cmp.Diff(s.Requests(), got); diff != "" {
		t.Errorf("the HTTP answer differs from Requests() (-want +got):\n%s", diff)
	}
}
