// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"strings"
	"testing"
)

const (
	askWrite  = `{"role":"user","content":"please write the file"}`
	askAgain  = `{"role":"user","content":[{"type":"text","text":"try "},{"type":"text","text":"again"}]}`
	readOnly  = `{"role":"user","content":"<context-snapshot>\nread-only & \"quoted\""}`
	writable  = `{"role":"user","content":"<context-snapshot>\nworkspace-write"}`
	callOne   = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"bash","arguments":"{}"}}]}`
	resultOne = `{"role":"tool","tool_call_id":"a","content":"permission denied"}`
	callTwo   = `{"role":"assistant","tool_calls":[{"id":"b"},{"id":"c"}]}`
	resultB   = `{"role":"tool","tool_call_id":"b","content":"first"}`
	resultC   = `{"role":"tool","tool_call_id":"c","content":"second"}`
	said      = `{"role":"assistant","content":"done"}`
)

func chatBody(messages ...string) string {
	return `{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`
}

// The choice depends on the request alone, sees past snapshots, and counts tool
// results from the last message that a user really wrote.
func TestChoose(t *testing.T) {
	script := mustScript(t, `
version: 1
rules:
- {name: one result, when: {lastUser: write, lastRole: tool, toolResults: 1, toolResult: denied}, reply: {text: x}}
- {name: three results, when: {toolResults: 3}, reply: {text: x}}
- {name: second, when: {toolResult: second}, reply: {text: x}}
- {name: again, when: {lastUser: try again, lastRole: user}, reply: {text: x}}
- {name: start, when: {lastUser: write, toolResults: 0}, reply: {text: x}}
`)
	for name, tc := range map[string]struct {
		messages []string
		want     string
	}{
		"a user message":                              {[]string{askWrite}, "start"},
		"a snapshot behind it is not the user's":      {[]string{askWrite, readOnly}, "start"},
		"a tool result, conditions in any order":      {[]string{askWrite, readOnly, callOne, resultOne}, "one result"},
		"a snapshot behind a tool result":             {[]string{askWrite, callOne, resultOne, writable}, "one result"},
		"a snapshot does not restart the count":       {[]string{askWrite, callOne, resultOne, writable, callTwo, resultB, resultC}, "three results"},
		"the last of the tool results counts":         {[]string{askAgain, callTwo, resultC, resultB, callOne, resultOne, callTwo, resultB, resultC}, "second"},
		"results of an earlier turn are forgotten":    {[]string{askWrite, callOne, resultOne, said, askAgain}, "again"},
		"content in parts is joined":                  {[]string{askAgain}, "again"},
		"no rule: the role of the last message is no": {[]string{askAgain, said}, ""},
		"no rule: another text":                       {[]string{`{"role":"user","content":"hello"}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(chatBody(tc.messages...))
			req, err := decodeRequest(body, DefaultSnapshotTag)
			if err != nil {
				t.Fatal(err)
			}
			v := viewOf(req, body)
			r, err := script.choose(&v)
			if tc.want == "" {
				if err == nil {
					t.Fatalf("chose %s, want none", r.label())
				}
				return
			}
			if err != nil || r.Name != tc.want {
				t.Fatalf("chose %v (%v), want %s", r, err, tc.want)
			}
		})
	}
}

// A script fails loudly: the answer is HTTP 400, says what was missing, and the
// request is on record under the rule that refused it.
func TestRequireFailsLoudly(t *testing.T) {
	for name, tc := range map[string]struct {
		require string
		request string
		want    string // empty: the request is answered
	}{
		"the last snapshot counts": {
			"snapshot: {mustContain: [workspace-write], mustNotContain: [read-only]}",
			chatBody(askWrite, readOnly, callOne, resultOne, writable), "",
		},
		"a text is missing in the snapshot": {
			"snapshot: {mustContain: [workspace-write]}", chatBody(askWrite, readOnly),
			`rule 1 (strict): the last context snapshot must contain "workspace-write", but it does not; it is: "<context-snapshot>\nread-only`,
		},
		"a forbidden text stands in the snapshot": {
			"snapshot: {mustNotContain: [read-only]}", chatBody(askWrite, readOnly),
			`the last context snapshot must not contain "read-only", but it does`,
		},
		"there is no snapshot": {
			"snapshot: {mustNotContain: [read-only]}", chatBody(askWrite), "the request carries no context snapshot",
		},
		"the tool result": {
			"toolResult: {mustContain: [was refused]}", chatBody(askWrite, callOne, resultOne),
			`the last tool result must contain "was refused", but it does not; it is: "permission denied"`,
		},
		"no tool result": {"toolResult: {mustContain: [x]}", chatBody(askWrite), "the last tool result must contain"},
		"the request, as text": {
			`request: {mustContain: ['& "quoted"']}`, chatBody(askWrite, readOnly), "",
		},
		"the request, as bytes": {
			`request: {mustContain: ['"model":"m"']}`, chatBody(askWrite), "",
		},
		"a text is missing in the request": {
			`request: {mustContain: [elsewhere]}`, chatBody(askWrite), `the request must contain "elsewhere"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(mustScript(t, "version: 1\nrules: [{name: strict, when: {}, require: {"+tc.require+"}, reply: {text: fine}}]"))
			status, answer := post(t, s, tc.request)
			rec := s.Requests()[0]
			if tc.want == "" {
				if status != 200 || !strings.Contains(answer, "fine") || !rec.Complete {
					t.Fatalf("status %d, answer %s, record %+v", status, answer, rec)
				}
				return
			}
			message, code := errorOf(t, answer)
			if status != 400 || code != "replay_requirement" || !strings.Contains(message, tc.want) {
				t.Errorf("status %d, code %s, message %q, want it to contain %q", status, code, message, tc.want)
			}
			if rec.Status != 400 || rec.Rule != "rule 1 (strict)" || rec.Error != message {
				t.Errorf("the record does not say it: %+v", rec)
			}
		})
	}
}

// What a client did wrong is named, so that its author need not guess.
func TestRefusedRequests(t *testing.T) {
	s := New(mustScript(t, "version: 1\nmodels: [m]\nrules: [{when: {lastUser: write}, reply: {text: ok}}]"))
	for name, tc := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"no rule":                  {chatBody(`{"role":"user","content":"hello there"}`), 400, `no rule of the script matches: the last message is from user: "hello there"`},
		"no JSON":                  {`hello`, 400, "the body is no JSON object"},
		"something behind it":      {chatBody(askWrite) + `{}`, 400, "something follows the closing }"},
		"a field twice":            {`{"model":"m","model":"m","messages":[` + askWrite + `]}`, 400, `the field "model" occurs twice`},
		"no model":                 {`{"messages":[` + askWrite + `]}`, 400, "model is missing"},
		"another model":            {`{"model":"n","messages":[` + askWrite + `]}`, 404, `there is no model "n"; the script has m`},
		"no messages":              {`{"model":"m","messages":[]}`, 400, "messages is missing or empty"},
		"messages of a wrong type": {`{"model":"m","messages":3}`, 400, "messages must be a list"},
		"an unknown role":          {chatBody(`{"role":"robot","content":"x"}`), 400, `messages[0]: role is "robot"`},
		"a wrong content":          {chatBody(`{"role":"user","content":7}`), 400, "messages[0]: content must be"},
		"a call without a result":  {chatBody(askWrite, callOne), 400, `tool call "a" has no result`},
		"a snapshot between a call and its result": {
			chatBody(askWrite, callTwo, resultB, readOnly, resultC), 400, `messages[3] (snapshot) stands before the result of tool call "c"`,
		},
		"a result twice":            {chatBody(askWrite, callOne, resultOne, resultOne), 400, `messages[3] answers tool call "a"`},
		"a result without a call":   {chatBody(askWrite, resultOne), 400, `messages[1] answers tool call "a"`},
		"a tool message without id": {chatBody(askWrite, `{"role":"tool","content":"x"}`), 400, "needs tool_call_id"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := post(t, s, tc.body)
			if message, _ := errorOf(t, answer); status != tc.status || !strings.Contains(message, tc.want) {
				t.Errorf("status %d, message %q, want %d and %q", status, message, tc.status, tc.want)
			}
		})
	}
}
