// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
)

// onRequest is law 1, that the last snapshot states the standing policy, and law 5, that what
// was sent stays as it was.
func (l *laws) onRequest(e eventlog.Event, p eventlog.RequestSent, body []byte) {
	l.t.Helper()
	var r struct {
		Messages []struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		l.t.Fatalf("event %d: %v", e.Seq, err)
	}
	last := ""
	var due []string // results that must come next
	for _, m := range r.Messages {
		if len(due) > 0 {
			if m.Role != "tool" || m.ToolCallID != due[0] {
				l.t.Fatalf("event %d: %s stands where the result of %s belongs", e.Seq, m.Role, due[0])
			}
			due = due[1:]
			continue
		}
		if m.Role == "tool" {
			l.t.Fatalf("event %d: the result of %s stands without its call", e.Seq, m.ToolCallID)
		}
		for _, c := range m.ToolCalls {
			due = append(due, c.ID)
		}
		if m.Role == "user" && policy.IsSnapshot(m.Content) {
			if m.Content == last {
				l.t.Fatalf("event %d: the same snapshot is told twice in a row", e.Seq)
			}
			last = m.Content
		}
	}
	if len(due) > 0 {
		l.t.Fatalf("event %d: call %s has no result", e.Seq, due[0])
	}
	want := policy.Snapshot(policy.Contributions(l.policies[l.standing], l.workspace))
	if l.suppressed {
		want = ""
	}
	if last != want || p.PolicySeq != l.standing {
		l.t.Fatalf("I1: event %d states\n%s\nand stands under %d:\n%s", e.Seq, last, l.standing, want)
	}
	front, _, _ := bytes.Cut(body, []byte(`"messages":[`))
	same := bytes.HasPrefix(body, bytes.TrimSuffix(l.lastBody, []byte("]}")))
	if p.Ask != "" { // it asks about a prefix of what was sent, or of what is sent next
		same = l.asksAboutAPrefix(body, p)
	}
	if !l.header && (!same || l.lastFront != nil && !bytes.Equal(front, l.lastFront)) {
		l.t.Fatalf("I5: event %d does not begin with what was sent before", e.Seq)
	}
	if p.Ask != "" {
		return
	}
	if same && l.lastBody != nil {
		l.adds(e, body)
	}
	l.header, l.answered, l.lastBody, l.lastFront, l.told = false, false, body, front, p.PolicySeq
}

// adds is law 5 for what stands behind all that was sent: first the answer to it, and one snapshot at most.
func (l *laws) adds(e eventlog.Event, body []byte) {
	l.t.Helper()
	snapshots := 0
	for i, m := range l.list(body)[len(l.list(l.lastBody)):] {
		if i == 0 && l.answered && m.Role != "assistant" {
			l.t.Fatalf("I5: event %d says something before the answer to what was sent: %q", e.Seq, m.Content)
		}
		if m.Role == "user" && policy.IsSnapshot(m.Content) {
			snapshots++
		}
	}
	if snapshots > 1 {
		l.t.Fatalf("I5: event %d carries %d new snapshots: the last one is enough", e.Seq, snapshots)
	}
}

type lawMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	raw     string
}

// list is the messages of a body.
func (l *laws) list(body []byte) (all []lawMessage) {
	l.t.Helper()
	var r struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, &r); err != nil {
		l.t.Fatalf("%v", err)
	}
	for _, raw := range r.Messages {
		m := lawMessage{raw: string(raw)}
		if err := json.Unmarshal(raw, &m); err != nil {
			l.t.Fatalf("%v", err)
		}
		all = append(all, m)
	}
	return all
}

func (l *laws) asksAboutAPrefix(body []byte, p eventlog.RequestSent) bool {
	l.t.Helper()
	asked, sent := l.list(body), l.list(l.lastBody)
	if !strings.HasPrefix(asked[len(asked)-1].Content, p.Ask[:40]) {
		return false
	}
	n := min(len(asked)-2, len(sent)) // behind it the question, and perhaps a snapshot
	return n <= 0 || slices.Equal(asked[:n], sent[:n])
}
