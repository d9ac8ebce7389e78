// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// scriptVersion is the one version of the script format that exists.
const scriptVersion = 1

// maxDelay bounds a rule's delay: beyond it every client has given up.
const maxDelay = 10 * time.Minute

// Script is a checked list of rules. It comes from Parse or Load only.
type Script struct {
	models []string
	rules  []rule
}

// rule is one entry of the script: when it plays, what it insists on, what it says.
type rule struct {
	Name    string   `json:"name"`
	When    *when    `json:"when"`
	Require require  `json:"require"`
	Delay   duration `json:"delay"`
	Reply   *reply   `json:"reply"`

	number int // counted from 1, as a person counts
}

// when holds when each condition that is set holds.
type when struct {
	LastUser    string `json:"lastUser,omitempty"`
	LastRole    string `json:"lastRole,omitempty"`
	ToolResult  string `json:"toolResult,omitempty"`
	ToolResults *int   `json:"toolResults,omitempty"`
}

// require is checked after a rule was chosen; what does not hold fails the request.
type require struct {
	Snapshot   *texts `json:"snapshot"`
	ToolResult *texts `json:"toolResult"`
	Request    *texts `json:"request"`
}

type texts struct {
	MustContain    []string `json:"mustContain"`
	MustNotContain []string `json:"mustNotContain"`
}

type reply struct {
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning"`
	ToolCalls []toolCall `json:"toolCalls"`
	Finish    string     `json:"finish"`
}

type toolCall struct {
	Name         string          `json:"name"`
	Arguments    json.RawMessage `json:"arguments"`
	RawArguments *string         `json:"rawArguments"`

	arguments string // what is sent
}

// Load reads and checks a script file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the script: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	return s, nil
}

// Parse reads and checks a script. Its errors name the line (YAML) or the rule
// (content), and what to do.
func Parse(data []byte) (*Script, error) {
	var file struct {
		Version *int              `json:"version"`
		Models  []string          `json:"models"`
		Rules   []json.RawMessage `json:"rules"`
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML: %w", err)
	}
	if err := decodeStrict(asJSON, &file); err != nil {
		return nil, fmt.Errorf("%w; a script has version, models and rules", err)
	}
	if file.Version == nil || *file.Version != scriptVersion {
		return nil, fmt.Errorf("write version: %d at the top; this program reads no other version", scriptVersion)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("no rules; add at least one under rules")
	}
	s := &Script{models: file.Models}
	for i, raw := range file.Rules {
		r := rule{number: i + 1}
		if err := decodeStrict(raw, &r); err != nil {
			return nil, fmt.Errorf("%s: %w; a rule has name, when, require, delay and reply", r.label(), err)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", r.label(), err)
		}
		s.rules = append(s.rules, r)
	}
	return s, s.checkReachable()
}

// label names a rule as messages and records do: its number, and its name if it has one.
func (r *rule) label() string {
	if r.Name == "" {
		return fmt.Sprintf("rule %d", r.number)
	}
	return fmt.Sprintf("rule %d (%s)", r.number, r.Name)
}

func (r *rule) check() error {
	if r.When == nil {
		return errors.New("no when; write when: {} if it is to match every request")
	}
	if r.Reply == nil {
		return errors.New("no reply; add one with text, reasoning or toolCalls")
	}
	return errors.Join(r.When.check(), r.Require.check(), r.Reply.check())
}

// check refuses conditions that can never hold together: such a rule would be
// silently dead.
func (w *when) check() error {
	wantsResult := w.ToolResult != "" || (w.ToolResults != nil && *w.ToolResults > 0)
	switch {
	case w.LastRole != "" && w.LastRole != roleUser && w.LastRole != roleTool:
		return fmt.Errorf("lastRole is %q; use user or tool", w.LastRole)
	case w.ToolResults != nil && *w.ToolResults < 0:
		return fmt.Errorf("toolResults is %d; use 0 or more", *w.ToolResults)
	case w.LastRole == roleUser && wantsResult:
		return errors.New("when can never hold: lastRole: user means that there is no tool result yet; use lastRole: tool")
	case w.ToolResults != nil && *w.ToolResults == 0 && (w.LastRole == roleTool || w.ToolResult != ""):
		return errors.New("when can never hold: toolResults: 0 excludes lastRole: tool and toolResult; drop one of them")
	}
	return nil
}

func (q *require) check() error {
	return errors.Join(q.Snapshot.check("snapshot"), q.ToolResult.check("toolResult"), q.Request.check("request"))
}

func (t *texts) check(where string) error {
	switch {
	case t == nil:
		return nil
	case len(t.MustContain)+len(t.MustNotContain) == 0:
		return fmt.Errorf("require.%s demands nothing; add mustContain or mustNotContain", where)
	case slices.Contains(t.MustContain, "") || slices.Contains(t.MustNotContain, ""):
		return fmt.Errorf("require.%s has an empty text; write what is to be looked for", where)
	}
	return nil
}

func (p *reply) check() error {
	if p.Text == "" && p.Reasoning == "" && len(p.ToolCalls) == 0 {
		return errors.New("the reply is empty; give it text, reasoning or toolCalls")
	}
	for i := range p.ToolCalls {
		if err := p.ToolCalls[i].prepare(); err != nil {
			return fmt.Errorf("toolCalls[%d]: %w", i, err)
		}
	}
	switch p.Finish {
	case "":
		p.Finish = finishStop
		if len(p.ToolCalls) > 0 {
			p.Finish = finishToolCalls
		}
	case finishLength:
	case finishStop:
		if len(p.ToolCalls) > 0 {
			return errors.New("finish: stop contradicts toolCalls; use tool_calls, or leave finish out")
		}
	case finishToolCalls:
		if len(p.ToolCalls) == 0 {
			return errors.New("finish: tool_calls needs toolCalls; add some, or leave finish out")
		}
	default:
		return fmt.Errorf("finish is %q; use stop, tool_calls or length", p.Finish)
	}
	return nil
}

// prepare turns the arguments into the string that is sent: sorted keys, no
// HTML escapes, or the raw string as it stands (it may be broken on purpose).
func (c *toolCall) prepare() error {
	if strings.TrimSpace(c.Name) == "" {
		return errors.New("no name; name the tool to call")
	}
	if c.RawArguments != nil {
		if c.Arguments != nil {
			return errors.New("both arguments and rawArguments; keep one")
		}
		c.arguments = *c.RawArguments
		return nil
	}
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(c.Arguments))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || object == nil {
		return errors.New("arguments must be a mapping; use rawArguments for anything else")
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return fmt.Errorf("encoding arguments: %w", err)
	}
	c.arguments = strings.TrimSuffix(out.String(), "\n")
	return nil
}

// checkReachable refuses a rule that an earlier one always hides.
func (s *Script) checkReachable() error {
	seen := map[string]string{}
	for i := range s.rules {
		r := &s.rules[i]
		key, err := json.Marshal(r.When)
		if err != nil {
			return fmt.Errorf("%s: comparing when: %w", r.label(), err)
		}
		for _, hiding := range []string{string(key), "{}"} {
			if earlier, ok := seen[hiding]; ok {
				return fmt.Errorf("%s can never play: %s matches all that it matches; move the narrower rule first, or remove one",
					r.label(), earlier)
			}
		}
		seen[string(key)] = r.label()
	}
	return nil
}

// duration is a time.Duration written as "250ms".
type duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("delay is %s; write a duration such as 250ms or 2s", data)
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 || v > maxDelay {
		return fmt.Errorf("delay is %q; write a duration from 0s to %s, such as 250ms", s, maxDelay)
	}
	*d = duration(v)
	return nil
}

// decodeStrict decodes one JSON value and words its errors for the author of a script.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q cannot be a %s (a text that looks like one needs quotes)", typeErr.Field, typeErr.Value)
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
