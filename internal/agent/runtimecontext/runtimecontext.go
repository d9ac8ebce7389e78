// SPDX-License-Identifier: Apache-2.0

// Package runtimecontext decides when the model must be told the standing policy
// anew, and keeps everybody else from sounding like that. It is pure: where a
// snapshot stands in the transcript is package transcript's to say, and what the
// policy's words are is package policy's.
package runtimecontext

import (
	"strings"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Visible is the last snapshot that the history shows, or will show with the next
// request. The zero value says that there is none.
type Visible struct {
	Text  string
	Clear bool // it was the one that clears
}

// Snapshot is a snapshot to be logged.
type Snapshot struct {
	Text  string
	Clear bool
}

// Due decides whether a snapshot has to be logged. It has to in four cases: none is
// visible (nothing was told yet, or compaction removed it), its bytes
// differ from the visible one, or the last contribution vanished, once.
func Due(contributions []policy.Contribution, visible Visible) (Snapshot, bool) {
	clear := true
	for _, c := range contributions {
		clear = clear && c.Text == ""
	}
	if clear {
		return Snapshot{Text: policy.Snapshot(nil), Clear: true}, visible.Text != "" && !visible.Clear
	}
	text := policy.Snapshot(contributions)
	return Snapshot{Text: text}, text != visible.Text
}

const maxAuthor = 256

// UserText is a user's message as the model reads it: who speaks, then what is said,
// with everything altered that is reserved for snapshots.
func UserText(author, content string) string {
	if author == "" {
		return policy.Defuse(valid(content))
	}
	return policy.Defuse("Message from " + oneLine(author) + ":\n\n" + valid(content))
}

// ResultText is a tool's result as the model reads it.
func ResultText(s string) string { return policy.Defuse(valid(s)) }

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, valid(s))
	if len(s) > maxAuthor {
		s = valid(s[:maxAuthor])
	}
	return strings.TrimSpace(s)
}
