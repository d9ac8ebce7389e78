// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"cmp"
	"slices"
	"strings"
)

// Stream redacts a text that comes in pieces, also where a secret is spread over
// several of them: what may become one is held back until it is known to be none.
type Stream struct {
	held string
}

// Add takes a piece and returns what may be shown by now.
func (s *Stream) Add(piece string, secrets []string) string {
	secrets = worthHiding(secrets)
	text := s.held + piece
	s.held = ""
	var out strings.Builder
	for i := 0; i < len(text); {
		n, more := secretAt(text[i:], secrets)
		switch {
		case more:
			s.held = text[i:]
			return out.String()
		case n > 0:
			out.WriteString(redactedMark)
			i += n
		default:
			out.WriteByte(text[i])
			i++
		}
	}
	return out.String()
}

// End returns what was held back. So much of a secret that it would be looked for by itself is
// not shown either.
func (s *Stream) End(secrets []string) string {
	held := s.held
	s.held = ""
	for _, secret := range worthHiding(secrets) {
		if len(held) >= minSecret && strings.HasPrefix(secret, held) {
			return redactedMark
		}
	}
	return held
}

// secretAt is the length of the longest secret that a text begins with. More says that the text ends
// before that is known.
func secretAt(text string, secrets []string) (n int, more bool) {
	for _, secret := range secrets {
		switch {
		case strings.HasPrefix(text, secret):
			return len(secret), false
		case strings.HasPrefix(secret, text):
			return 0, true
		}
	}
	return 0, false
}

// worthHiding are the secrets that are looked for, longest first: one may begin with another.
func worthHiding(secrets []string) []string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return secrets
}
