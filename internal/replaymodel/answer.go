// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"
)

// answer is a reply with everything that is derived from its request.
type answer struct {
	digest       string // of the request's body: all ids come from it
	model        string
	includeUsage bool
	reply        reply
	unfinished   bool // says no finish reason
	tokens       tokenCount
}

// tokenCount is an answer's usage in disjoint buckets; reasoning is a part of output.
type tokenCount struct {
	input, cacheRead, cacheWrite int
	output, reasoning            int
}

func answerTo(r Record, req *request, p reply) *answer {
	a := &answer{digest: r.BodyDigest, model: req.model, includeUsage: req.includeUsage, reply: p}
	spoken := len(p.Text)
	for _, c := range p.ToolCalls {
		spoken += len(c.Name) + len(c.arguments)
	}
	t := &a.tokens
	t.cacheRead, t.cacheWrite = r.CachedTokens, r.CacheWriteTokens
	t.input = r.PromptTokens - t.cacheRead - t.cacheWrite
	t.reasoning = tokens(len(p.Reasoning))
	t.output = tokens(spoken) + t.reasoning
	return a
}

// id derives an identifier from the request, so that a repeated request is
// answered with the same bytes.
func (a *answer) id(prefix string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", a.digest, prefix, index))
	return prefix + hex.EncodeToString(sum[:12])
}

// orDerived is a recorded id, or one derived from the request.
func (a *answer) orDerived(recorded, prefix string, index int) string {
	if recorded != "" {
		return recorded
	}
	return a.id(prefix, index)
}

// pieces cuts a text at character boundaries, into about 16 bytes each, more
// where that would give more than some 200 pieces.
func pieces(s string) iter.Seq[string] {
	size := max(16, len(s)/200)
	return func(yield func(string) bool) {
		for s != "" {
			end := min(size, len(s))
			for end < len(s) && !utf8.RuneStart(s[end]) {
				end++
			}
			if !yield(s[:end]) {
				return
			}
			s = s[end:]
		}
	}
}

// What an endless reply consists of. The filler is no JSON, so that arguments
// made of it can never come out whole.
const endlessTool = "endless"

var filler = strings.Repeat("and so on, ", 372) // some 4 KiB
