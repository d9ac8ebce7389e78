// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	models     []string
	accounting accounting
	rules      []rule
}

// accounting says how the modelled provider's cache sees a conversation.
type accounting struct {
	DropReasoningBeforeLastUser bool `json:"dropReasoningBeforeLastUser"`
}

// rule is one entry of the script: when it plays, what it insists on, what it says.
type rule struct {
	Name    string   `json:"name,omitempty"`
	When    *when    `json:"when"`
	Require require  `json:"require,omitzero"`
	Delay   duration `json:"delay,omitzero"`
	Faults  []fault  `json:"faults,omitempty"`
	Reply   *reply   `json:"reply,omitempty"`

	number int // counted from 1, as a person counts
}

// when holds when each condition that is set holds.
type when struct {
	Digest      string `json:"digest,omitempty"`
	LastUser    string `json:"lastUser,omitempty"`
	LastRole    string `json:"lastRole,omitempty"`
	ToolResult  string `json:"toolResult,omitempty"`
	ToolResults *int   `json:"toolResults,omitempty"`
}

// require is checked after a rule was chosen; what does not hold fails the request.
type require struct {
	Model      string            `json:"model"`
	Header     map[string]*texts `json:"header"`
	Snapshot   *texts            `json:"snapshot"`
	ToolResult *texts            `json:"toolResult"`
	Request    *texts            `json:"request"`
}

type texts struct {
	MustContain    []string `json:"mustContain"`
	MustNotContain []string `json:"mustNotContain"`
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
		Version    *int              `json:"version"`
		Models     []string          `json:"models"`
		Accounting accounting        `json:"accounting"`
		Rules      []json.RawMessage `json:"rules"`
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("not valid YAML: %w", err)
	}
	if err := decodeStrict(asJSON, &file); err != nil {
		return nil, fmt.Errorf("%w; a script has version, models and rules, and may have accounting", err)
	}
	if file.Version == nil || *file.Version != scriptVersion {
		return nil, fmt.Errorf("write version: %d at the top; this program reads no other version", scriptVersion)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("no rules; add at least one under rules")
	}
	s := &Script{models: file.Models, accounting: file.Accounting}
	for i, raw := range file.Rules {
		r := rule{number: i + 1}
		if err := decodeStrict(raw, &r); err != nil {
			return nil, fmt.Errorf("%s: %w; a rule has name, when, require, delay and reply, and may have faults", r.label(), err)
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
	if r.Reply == nil && len(r.Faults) == 0 {
		return errors.New("no reply; add one with text, reasoning or toolCalls")
	}
	return errors.Join(r.When.check(), r.Require.check(), checkFaults(r.Faults), r.Reply.check())
}

// check refuses conditions that can never hold together: such a rule would be
// silently dead.
func (w *when) check() error {
	wantsResult := w.ToolResult != "" || (w.ToolResults != nil && *w.ToolResults > 0)
	switch {
	case w.Digest != "" && !isDigest(w.Digest):
		return fmt.Errorf("digest is %q; use the conversationDigest of a request as GET /requests shows it", w.Digest)
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
	for _, name := range slices.Sorted(maps.Keys(q.Header)) {
		t := q.Header[name]
		switch {
		case isSecretHeader(name):
			return fmt.Errorf("require.header.%s would put a secret into the script; use --api-key-file", name)
		case t == nil:
			return fmt.Errorf("require.header.%s demands nothing; add mustContain or mustNotContain", name)
		}
		if err := t.check("header." + name); err != nil {
			return err
		}
	}
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

// isSecretHeader keeps credentials out of scripts, messages and records.
func isSecretHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Cookie":
		return true
	}
	return false
}

func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && s == strings.ToLower(s)
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
