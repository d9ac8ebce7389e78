// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"os"
	"strings"
	"testing"
)

// The example in the format's documentation is a valid script.
func TestDocumentedExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/formats/replay-script.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no yaml example in the documentation")
	}
	s := mustScript(t, example)
	if len(s.rules) != 2 {
		t.Fatalf("%d rules, want 2", len(s.rules))
	}
	if got, want := s.rules[0].Reply.ToolCalls[0].arguments, `{"command":"echo hello > hello.txt"}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
}

func TestArguments(t *testing.T) {
	s := mustScript(t, `
version: 1
rules:
- when: {}
  reply:
    toolCalls:
    - {name: a, arguments: {z: 1, a: "<&>", big: 12345678901234567, list: [true, null]}}
    - {name: b}
    - {name: c, rawArguments: '{"broken'}
    - {name: d, rawArguments: ''}
`)
	want := []string{`{"a":"<&>","big":12345678901234567,"list":[true,null],"z":1}`, `{}`, `{"broken`, ``}
	for i, c := range s.rules[0].Reply.ToolCalls {
		if c.arguments != want[i] {
			t.Errorf("%s: %q, want %q", c.Name, c.arguments, want[i])
		}
	}
}

// A bad script is refused at start-up with the line or the rule, and what to do.
func TestBadScripts(t *testing.T) {
	rule := func(text string) string {
		return "version: 1\nrules:\n- {when: {lastUser: x}, reply: {text: a}}\n- {name: second, " + text + "}\n"
	}
	for name, tc := range map[string]struct{ script, want string }{
		"no YAML":                    {"version: 1\nrules:\n- when: [\n", "line 3"},
		"a key twice":                {"version: 1\nversion: 1\nrules: []\n", `line 2: key "version" already set`},
		"an unknown top-level field": {"version: 1\nrulez: []\n", `unknown field "rulez"; a script has version, models and rules`},
		"no version":                 {"rules: []\n", "write version: 1"},
		"another version":            {"version: 2\nrules: []\n", "write version: 1"},
		"empty":                      {"", "write version: 1"},
		"a list":                     {"- a\n", "a script has version"},
		"no rules":                   {"version: 1\n", "no rules; add at least one"},
		"an unknown field":           {rule("wen: {}"), `rule 2 (second): unknown field "wen"; a rule has name, when, require, delay and reply`},
		"a number as a text":         {rule("when: {lastUser: 5}, reply: {text: a}"), `rule 2 (second): field "when.lastUser" cannot be a number`},
		"no when":                    {rule("reply: {text: a}"), "rule 2 (second): no when; write when: {}"},
		"no reply":                   {rule("when: {}"), "rule 2 (second): no reply; add one"},
		"an empty reply":             {rule("when: {}, reply: {}"), "the reply is empty; give it"},
		"an unknown role":            {rule("when: {lastRole: system}, reply: {text: a}"), "use user or tool"},
		"a negative count":           {rule("when: {toolResults: -1}, reply: {text: a}"), "use 0 or more"},
		"user with results":          {rule("when: {lastRole: user, toolResults: 1}, reply: {text: a}"), "can never hold"},
		"tool without results":       {rule("when: {lastRole: tool, toolResults: 0}, reply: {text: a}"), "can never hold"},
		"require of nothing":         {rule("when: {}, require: {snapshot: {}}, reply: {text: a}"), "require.snapshot demands nothing"},
		"require of an empty text":   {rule("when: {}, require: {request: {mustContain: ['']}}, reply: {text: a}"), "require.request has an empty text"},
		"an unknown finish":          {rule("when: {}, reply: {text: a, finish: end}"), "use stop, tool_calls, length or content_filter"},
		"tool_calls without calls":   {rule("when: {}, reply: {text: a, finish: tool_calls}"), "needs toolCalls"},
		"stop with calls":            {rule("when: {}, reply: {finish: stop, toolCalls: [{name: a}]}"), "contradicts toolCalls"},
		"a call without a name":      {rule("when: {}, reply: {toolCalls: [{arguments: {}}]}"), "toolCalls[0]: no name"},
		"arguments that are a list":  {rule("when: {}, reply: {toolCalls: [{name: a, arguments: [1]}]}"), "arguments must be a mapping; use rawArguments"},
		"both kinds of arguments":    {rule("when: {}, reply: {toolCalls: [{name: a, arguments: {}, rawArguments: x}]}"), "keep one"},
		"a delay without a unit":     {rule("when: {}, delay: 5, reply: {text: a}"), "delay is 5; write a duration such as 250ms"},
		"a delay below zero":         {rule("when: {}, delay: -1s, reply: {text: a}"), `delay is "-1s"; write a duration from 0s`},
		"a digest that is none":      {rule("when: {digest: abc}, reply: {text: a}"), "use the conversationDigest of a request"},
		"a fault of no kind":         {rule("when: {}, faults: [{kind: crash}]"), `faults[0]: kind is "crash"; use status,`},
		"a fault without its status": {rule("when: {}, faults: [{kind: status}]"), "status is 0; use one from 400 to 599"},
		"a field of another fault":   {rule("when: {}, faults: [{kind: html, after: 1}]"), "after means nothing with kind: html; remove it"},
		"a fault a negative time":    {rule("when: {}, faults: [{kind: cut, times: -1}]"), "times is -1; use 1 or more"},
		"a negative wait":            {rule("when: {}, faults: [{kind: status, status: 429, retryAfter: -1}]"), "use whole seconds"},
		"an end before the start":    {rule("when: {}, faults: [{kind: cut, after: -1}]"), "after is -1"},
		"endless what":               {rule("when: {}, faults: [{kind: endless, of: love}]"), "use text, reasoning, arguments or line"},
		"both kinds of finish":       {rule("when: {}, reply: {text: a, finish: stop, rawFinish: b}"), "both finish and rawFinish; keep one"},
		"a demanded secret":          {rule("when: {}, require: {header: {authorization: {mustContain: [x]}}}, reply: {text: a}"), "would put a secret into the script"},
		"a header without a demand":  {rule("when: {}, require: {header: {X-A: {}}}, reply: {text: a}"), "require.header.X-A demands nothing"},
		"an unknown accounting":      {"version: 1\naccounting: {free: true}\nrules: []\n", `unknown field "free"`},
		"a hidden rule":              {rule("when: {lastUser: x}, reply: {text: a}"), "rule 2 (second) can never play: rule 1 matches all that it matches"},
		"a rule behind a catch-all":  {rule("when: {}, reply: {text: a}") + "- {when: {lastUser: z}, reply: {text: a}}\n", "rule 3 can never play: rule 2 (second)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.script))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse() = %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// Every piece of a script that the documentation shows is one.
func TestDocumentedFaults(t *testing.T) {
	doc, err := os.ReadFile("../../docs/formats/replay-script.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "## Faults")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	s := mustScript(t, "version: 1\nrules:\n"+example)
	if got := len(s.rules[0].Faults); got != 2 {
		t.Errorf("%d faults, want 2", got)
	}
	for kind := range faultFields {
		if !strings.Contains(string(doc), "| `"+string(kind)+"` |") {
			t.Errorf("the documentation lacks the fault %s", kind)
		}
	}
}
