// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a text is cut into pieces, what is shown is the text with the secrets replaced; of the
// start of a secret at its end nothing is shown that is long enough to be one.
func TestRedactStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 8, 12, -1)
		secrets := []string{"", "short", secret.Draw(t, "secret"), secret.Draw(t, "another")}
		secrets = append(secrets, secrets[2]+"ab") // one that begins with another
		part := rapid.OneOf(rapid.SampledFrom(secrets[2:]), rapid.StringOfN(rapid.SampledFrom([]rune("abcé")), 0, 5, -1))
		text := strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "parts"), "")
		var s Stream
		var got strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got.WriteString(s.Add(rest[:n], secrets))
			rest = rest[n:]
		}
		shown := got.String()
		shown += s.End(secrets)
		for _, secret := range secrets[2:] {
			if strings.Contains(shown, secret) {
				t.Fatalf("%q shows the secret %q", shown, secret)
			}
		}
		if want := leftmostLongest(text, secrets[2:]); shown != want {
			t.Fatalf("%q is shown as %q, want %q", text, shown, want)
		}
	})
}

// leftmostLongest is the slow way.
func leftmostLongest(text string, secrets []string) string {
	var out strings.Builder
	for text != "" {
		longest, begins := 0, false
		for _, s := range secrets {
			if strings.HasPrefix(text, s) {
				longest = max(longest, len(s))
			}
			begins = begins || len(text) >= minSecret && strings.HasPrefix(s, text)
		}
		if begins {
			longest = len(text)
		}
		if longest == 0 {
			out.WriteByte(text[0])
			text = text[1:]
			continue
		}
		out.WriteString(redactedMark)
		text = text[longest:]
	}
	return out.String()
}
