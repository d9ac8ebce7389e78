// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	marker = `,"cache_control":{"type":"ephemeral"}`
	user   = "user"
)

// textOf is a text block of exactly n bytes, with a breakpoint beside those bytes or without.
func textOf(content string, n int, marked bool) string {
	b := fmt.Sprintf(`{"type":"text","text":%q}`, content)
	b = strings.Replace(b, `"}`, strings.Repeat("x", n-len(b))+`"}`, 1)
	if marked {
		b = strings.TrimSuffix(b, "}") + marker + "}"
	}
	return b
}

func turnOf(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

type buckets struct{ Input, Read, Written int }

// askMessages returns the usage that a client sees and the record.
func askMessages(t *testing.T, s *Server, body string) (buckets, Record) {
	t.Helper()
	status, answer := postMessages(t, s, body)
	var in struct {
		Usage struct {
			Input   int `json:"input_tokens"`
			Read    int `json:"cache_read_input_tokens"`
			Written int `json:"cache_creation_input_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(answer), &in); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	r := lastRecord(s)
	if sum := in.Usage.Input + in.Usage.Read + in.Usage.Written; sum != r.PromptTokens || in.Usage.Read != r.CachedTokens {
		t.Errorf("the buckets %+v are not disjoint parts of %+v", in.Usage, r)
	}
	return buckets(in.Usage), r
}

// Only what stands before a breakpoint is cached; a breakpoint that moved on
// finds the place where it was, and its move costs no byte of the prefix.
func TestBreakpoints(t *testing.T) {
	s := New(mustScript(t, sayOK))
	body := func(turns ...string) string {
		return `{"model":` + modelRaw + `,"max_tokens":9,"system":[` + textOf("be brief", 509, true) + `],"messages":[` + strings.Join(turns, ",") + `]}`
	}
	// 3 + 509 bytes are two blocks of 256; the user's 512 are two more.
	first, r1 := askMessages(t, s, body(turnOf(user, textOf("go", 512, true), textOf("more", 100, false))))
	if diff := cmp.Diff(buckets{Input: 25, Written: 256}, first); diff != "" {
		t.Errorf("first request (-want +got):\n%s", diff)
	}
	second, r2 := askMessages(t, s, body(turnOf(user, textOf("go", 512, false), textOf("more", 100, false)),
		turnOf("assistant", textOf("ok", 156, false)), turnOf(user, textOf("again", 256, true))))
	if diff := cmp.Diff(buckets{Read: 256, Written: 128}, second); diff != "" {
		t.Errorf("second request (-want +got):\n%s", diff)
	}
	if r2.CommonPrefixBytes != r1.PromptBytes || r2.NewBytes != 412 || r2.HeaderDigest != r1.HeaderDigest || r2.Conversation != r1.Conversation {
		t.Errorf("a moving breakpoint costs bytes: %+v after %+v", r2, r1)
	}
	unmarked := strings.ReplaceAll(body(turnOf(user, textOf("go", 512, false))), marker, "")
	if none, _ := askMessages(t, s, unmarked); none.Read != 0 || none.Written != 0 {
		t.Errorf("without a breakpoint: %+v", none)
	}
}

// An earlier breakpoint is found up to 20 blocks back, not beyond.
func TestBreakpointLookBack(t *testing.T) {
	for _, between := range []int{18, 19} {
		s := New(mustScript(t, sayOK))
		ask := func(marked bool, more ...string) buckets {
			b, _ := askMessages(t, s, messagesBody("", turnOf(user, append([]string{textOf("go", 1024, marked)}, more...)...)))
			return b
		}
		ask(true)
		var more []string
		for range between {
			more = append(more, textOf("a", 64, false))
		}
		got := ask(false, append(more, textOf("end", 64, true))...)
		if want := map[int]int{18: 256, 19: 0}[between]; got.Read != want {
			t.Errorf("with %d blocks between: read %d, want %d", between, got.Read, want)
		}
	}
}

// The digest of a conversation knows neither breakpoints nor how messages were merged.
func TestConversationDigestIsCanonical(t *testing.T) {
	s := New(mustScript(t, sayOK))
	a, b := textOf("go", 300, true), textOf("more", 300, false)
	_, marked := askMessages(t, s, messagesBody("", turnOf(user, a, b)))
	_, moved := askMessages(t, s, messagesBody("", turnOf(user, textOf("go", 300, false)), turnOf(user, textOf("more", 300, true))))
	if marked.ConversationDigest != moved.ConversationDigest || moved.NewBytes != 0 {
		t.Errorf("%+v and %+v differ", marked, moved)
	}
	if _, other := askMessages(t, s, messagesBody("", turnOf(user, a), turnOf("assistant", b))); other.ConversationDigest == marked.ConversationDigest {
		t.Error("another speaker, the same digest")
	}
}

// Exactly the marker goes: what is left are the bytes of a sender who wrote none.
func TestStripMarkers(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want string
		marked   bool
	}{
		"at the end":              {`{"a":1,"cache_control":{"x":[1,"}"]}}`, `{"a":1}`, true},
		"in front":                {`{"cache_control":{},"a": 1 , "b":2}`, `{"a": 1 , "b":2}`, true},
		"alone":                   {`{ "cache_control" : {} }`, `{ }`, true},
		"twice":                   {`{"cache_control":{},"cache_control":{},"a":1}`, `{"a":1}`, true},
		"null marks nothing":      {`{"a":1,"cache_control":null}`, `{"a":1}`, false},
		"other bytes stay":        {`{"a" :"\u003c", "n":1e2 ,"cache_control":{}}`, `{"a" :"\u003c", "n":1e2}`, true},
		"no marker":               {"{ \"a\":1\n}", "{ \"a\":1\n}", false},
		"a tool's input is kept":  {`{"input":{"cache_control":1}}`, `{"input":{"cache_control":1}}`, false},
		"within a result":         {`{"type":"tool_result","content":[{"text":"x","cache_control":{}}, {"b":1}]}`, `{"type":"tool_result","content":[{"text":"x"}, {"b":1}]}`, true},
		"a content of texts":      {`{"content":["cache_control"]}`, `{"content":["cache_control"]}`, false},
		"an escaped name":         {`{"a":1,"cache\u005fcontrol":{}}`, `{"a":1}`, true},
		"a comma within the name": {`{"a,":1,"cache_control":{},",b":2}`, `{"a,":1,",b":2}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, marked, err := stripMarkers([]byte(tc.in))
			if err != nil || string(got) != tc.want || marked != tc.marked {
				t.Errorf("stripMarkers(%s) = %s, %t, %v, want %s, %t", tc.in, got, marked, err, tc.want, tc.marked)
			}
		})
	}
}

// A template that drops reasoning before the last user message makes the next
// one, be it a snapshot, cost the cache behind the first reasoning.
func TestDroppedReasoning(t *testing.T) {
	reasoned := func(text string) string {
		return `{"role":"assistant","content":"ok","reasoning_content":"` + text + `","tool_calls":[{"id":"a"}]}`
	}
	system, user := sized("system", "s", 400), sized("user", "go", 600)
	call, snapshot := reasoned(strings.Repeat("r", 600)), sized("user", DefaultSnapshotTag, 300)
	result := strings.Replace(`{"role":"tool","tool_call_id":"a","content":"x"}`, "x", strings.Repeat("x", 300), 1)
	thinking := `{"type":"thinking","thinking":"` + strings.Repeat("r", 600) + `","signature":"s"}`
	use := `{"type":"tool_use","id":"a","name":"x","input":{}}`
	toolResult := `{"type":"tool_result","tool_use_id":"a","content":"` + strings.Repeat("x", 300) + `"}`
	messages := func(blocks ...string) string {
		return messagesBody("", turnOf("user", textOf("go", 600, false)), turnOf("assistant", thinking, use), turnOf("user", blocks...))
	}
	for name, tc := range map[string]struct {
		path          string
		within, after string
		kept          int // bytes of the first request's prefix before its reasoning
		dropped       int // bytes that the second request's prefix lacks
	}{
		"chat": {
			"/v1/chat/completions", withTools("", system, user, call, result), withTools("", system, user, call, result, snapshot),
			1024 + len(`{"role":"assistant","content":"ok",`) + 1, len(`"reasoning_content":"",`) + 600,
		},
		"messages": {"/v1/messages", messages(toolResult), messages(toolResult, textOf(DefaultSnapshotTag, 300, false)), 3 + 600 + len(`{"type":"t`), len(thinking)},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(accounting string) (first, second Record) {
				s := New(mustScript(t, accounting+sayOK))
				for _, body := range []string{tc.within, tc.after} {
					if status, answer := postWith(t, s, tc.path, body, nil); status != 200 {
						t.Fatalf("status %d: %s", status, answer)
					}
				}
				return s.Requests()[0], s.Requests()[1]
			}
			plain1, plain2 := ask("")
			if plain2.CommonPrefixBytes != plain1.PromptBytes || plain2.NewBytes != 300 {
				t.Errorf("with the reasoning kept: %+v", plain2)
			}
			first, second := ask("accounting: {dropReasoningBeforeLastUser: true}\n")
			if first.PromptBytes != plain1.PromptBytes {
				t.Errorf("before any later user message: %d bytes, want %d", first.PromptBytes, plain1.PromptBytes)
			}
			if second.PromptBytes != plain2.PromptBytes-tc.dropped || second.CommonPrefixBytes != tc.kept {
				t.Errorf("after one: %d bytes, %d of them common, want %d and %d", second.PromptBytes, second.CommonPrefixBytes, plain2.PromptBytes-tc.dropped, tc.kept)
			}
			if second.ConversationDigest != plain2.ConversationDigest {
				t.Error("what the template drops changed the digest of the conversation")
			}
		})
	}
}
