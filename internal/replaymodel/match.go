// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// view is what rules look at: the conversation without its context snapshots,
// and the snapshots.
type view struct {
	model     string
	header    http.Header
	digest    string // of the conversation
	lastRole  string
	lastUser  string
	results   []string // tool results since the last user message
	snapshots []string
	body      []byte
	messages  []message
}

func viewOf(req *request, body []byte) view {
	v := view{model: req.model, digest: conversationDigest(req), body: body, messages: req.messages}
	for _, m := range req.messages {
		switch {
		case m.kind == kindSnapshot:
			v.snapshots = append(v.snapshots, m.text)
			continue
		case m.role == roleUser && m.kind != roleUser:
			continue // an image or the like beside a text
		}
		v.lastRole = m.role
		switch m.role {
		case roleUser:
			v.lastUser, v.results = m.text, nil
		case roleTool:
			v.results = append(v.results, m.text)
		}
	}
	return v
}

func (v *view) lastResult() string {
	if len(v.results) == 0 {
		return ""
	}
	return v.results[len(v.results)-1]
}

// choose returns the first rule whose when holds, and whether its requirements hold.
func (s *Script) choose(v *view) (*rule, error) {
	for i := range s.rules {
		if r := &s.rules[i]; r.When.holds(v) {
			return r, r.Require.verify(v)
		}
	}
	last := v.messages[len(v.messages)-1]
	return nil, fmt.Errorf("no rule of the script matches: the last message is from %s: %q; the last user message is %q, with %d tool results since, and the conversation's digest %s; add a rule whose when holds for this",
		last.kind, cut(last.text), cut(v.lastUser), len(v.results), v.digest)
}

func (w *when) holds(v *view) bool {
	return (w.Digest == "" || w.Digest == v.digest) &&
		strings.Contains(v.lastUser, w.LastUser) &&
		(w.LastRole == "" || w.LastRole == v.lastRole) &&
		(w.ToolResult == "" || strings.Contains(v.lastResult(), w.ToolResult)) &&
		(w.ToolResults == nil || *w.ToolResults == len(v.results))
}

func (q *require) verify(v *view) error {
	if q.Model != "" && q.Model != v.model {
		return fmt.Errorf("the model must be %q, but it is %q", q.Model, cut(v.model))
	}
	for _, name := range slices.Sorted(maps.Keys(q.Header)) {
		have := strings.Join(v.header.Values(name), ", ")
		if err := q.Header[name].verify("header "+name, have, contains(have)); err != nil {
			return err
		}
	}
	if q.Snapshot != nil && len(v.snapshots) == 0 {
		return errors.New("the request carries no context snapshot, but the script demands one")
	}
	if q.Snapshot != nil {
		last := v.snapshots[len(v.snapshots)-1]
		if err := q.Snapshot.verify("last context snapshot", last, contains(last)); err != nil {
			return err
		}
	}
	if q.ToolResult != nil {
		last := v.lastResult()
		if err := q.ToolResult.verify("last tool result", last, contains(last)); err != nil {
			return err
		}
	}
	if q.Request != nil {
		return q.Request.verify("request", string(v.body), v.anywhere)
	}
	return nil
}

func (t *texts) verify(what, have string, found func(string) bool) error {
	for _, s := range t.MustContain {
		if !found(s) {
			return fmt.Errorf("the %s must contain %q, but it does not; it is: %q", what, s, cut(have))
		}
	}
	for _, s := range t.MustNotContain {
		if found(s) {
			return fmt.Errorf("the %s must not contain %q, but it does; it is: %q", what, s, cut(have))
		}
	}
	return nil
}

func contains(text string) func(string) bool {
	return func(s string) bool { return strings.Contains(text, s) }
}

// anywhere looks into the received bytes and into the decoded texts: an author
// does not think of JSON escapes.
func (v *view) anywhere(s string) bool {
	return strings.Contains(string(v.body), s) ||
		slices.ContainsFunc(v.messages, func(m message) bool { return strings.Contains(m.text, s) })
}
