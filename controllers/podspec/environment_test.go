// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// expand is what a kubelet makes of an argument, by the words of the API: references $(NAME) are
// replaced, $$ is one dollar, and everything else stays.
func expand(s string) string {
	var out strings.Builder
	for s != "" {
		name, rest, ok := "", "", false
		if strings.HasPrefix(s, "$(") {
			name, rest, ok = strings.Cut(s[2:], ")")
		}
		switch {
		case strings.HasPrefix(s, "$$"):
			out.WriteByte('$')
			s = s[2:]
		case ok:
			out.WriteString("<" + name + ">")
			s = rest
		default:
			out.WriteByte(s[0])
			s = s[1:]
		}
	}
	return out.String()
}

func TestAValueComesAsItStands(t *testing.T) {
	if got := expand("$(HOME) $x $$(y)"); got != "<HOME> $x $(y)" {
		t.Fatalf("the model of a kubelet is wrong: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[$()A-Z{} ]{0,12}`).Draw(t, "value")
		if got := expand(literal(s)); got != s {
			t.Fatalf("%q comes as %q", s, got)
		}
	})
}
