// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/agentsession-dev/operator/internal/policy"
)

// MaxPreview is the largest preview, in bytes. What is too long to be shown whole cannot be escalated.
const MaxPreview = 8 << 10

// notShown ends every preview: what a person approves is the call, not what it leads to; and what else becomes of
// the session if they do.
const notShown = "The contents of files that this reads or runs are not shown here.\n" +
	"Terminals that are open now are ended before it starts.\n"

// previewed are the arguments of a tool whose calls can be shown.
type previewed interface{ preview(b *preview) }

// Preview shows a call that can be escalated: all of what will run, with nothing in it that
// hides or reorders what stands there. Whatever the model wrote stands behind a bar, line by
// line, so it cannot pass for a part of the preview. False means that it is too long.
func (c Call) Preview(workspace string) (string, bool) {
	p, ok := c.Arguments.(previewed)
	if !ok {
		return "", false
	}
	b := &preview{workspace: workspace}
	p.preview(b)
	b.text.WriteString(notShown)
	return b.text.String(), b.text.Len() <= MaxPreview
}

func (w *Write) preview(b *preview) {
	b.label("write the file")
	b.quote(w.Path)
	b.label("with the content (%d bytes)", len(w.Content))
	b.quote(w.Content)
}

func (e *Edit) preview(b *preview) {
	b.label("edit the file")
	b.quote(e.Path)
	if e.ReplaceAll {
		b.label("replacing every occurrence of (%d bytes)", len(e.OldString))
	} else {
		b.label("replacing the one occurrence of (%d bytes)", len(e.OldString))
	}
	b.quote(e.OldString)
	b.label("by (%d bytes)", len(e.NewString))
	b.quote(e.NewString)
}

func (c *Bash) preview(b *preview) {
	b.label("run with bash, for %s at most, in the directory", c.Timeout())
	b.quote(c.dir(b.workspace))
	b.label("the command")
	b.quote(c.Command)
}

// dir is where the command runs; a relative one is below the workspace.
func (c *Bash) dir(workspace string) string {
	switch {
	case c.Cwd == "":
		return workspace
	case strings.HasPrefix(c.Cwd, "/"):
		return c.Cwd
	}
	return workspace + "/" + c.Cwd
}

type preview struct {
	workspace string
	text      strings.Builder
}

func (b *preview) label(format string, args ...any) { fmt.Fprintf(&b.text, format+"\n", args...) }

// quote puts a bar before each line. The text ends where the bars do.
func (b *preview) quote(s string) {
	for line := range strings.SplitSeq(Visible(s), "\n") {
		b.text.WriteString("| " + line + "\n")
	}
}

// Visible is a text in which every character shows; only line breaks stay.
func Visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' {
			b.WriteRune(r)
		} else {
			b.WriteString(visible(r))
		}
	}
	return b.String()
}

// visible spells out every character that shows nothing, moves what stands beside it, or
// looks like a space without being one. The bracket that it does so with is spelt out too, so
// two texts never look the same.
func visible(r rune) string {
	switch {
	case r == '\t':
		return "⟨tab⟩"
	case r == '⟨', r == '\u2800', !unicode.IsPrint(r),
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), unicode.Is(unicode.Variation_Selector, r):
		return fmt.Sprintf("⟨U+%04X⟩", r)
	}
	return string(r)
}

// RequestDigest is what a person's decision holds for: this call, with these arguments, in this
// directory, once, under this mode. It is the lower-case hex SHA-256 of a JSON object in the
// form of RFC 8785.
func (c Call) RequestDigest(workspace string, mode policy.Mode, sessionUID, callID string) (string, error) {
	cwd := workspace
	if b, ok := c.Arguments.(*Bash); ok {
		cwd = b.dir(workspace)
	}
	return requestDigest(map[string]any{
		"tool": c.Tool.Name, "arguments": rawObject(c.Canonical), "cwd": cwd,
		"mode": mode.String(), "sessionUID": sessionUID, "callID": callID,
	})
}
