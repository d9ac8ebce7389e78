// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"testing"

	"pgregory.net/rapid"
)

// A version is found behind whatever a tool says, and nowhere else.
func TestCutVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, version := rapid.String().Draw(t, "text"), VersionOf(rapid.String().Draw(t, "content"))
		if got, v := CutVersion([]byte(WithVersion(text, version))); string(got) != text || v != version {
			t.Fatalf("CutVersion() = %q, %q", got, v)
		}
		cut := WithVersion(text, version)[:len(text)+rapid.IntRange(0, len(versionMark)+63).Draw(t, "cut")]
		if got, v := CutVersion([]byte(cut)); string(got) != cut || v != "" {
			t.Fatalf("half a version gave %q, %q", got, v)
		}
	})
}

func TestFileOf(t *testing.T) {
	for want, a := range map[string]Arguments{
		"/workspace/a":   &Read{Path: "b/../a"},
		"/workspace/b":   &Write{Path: "/workspace//b"},
		"/etc/passwd":    &Edit{Path: "../etc/passwd"},
		"":               &Bash{Command: "cat a"},
		"/workspace/c d": &Edit{Path: "./c d"},
	} {
		if got := FileOf("/workspace", a); got != want {
			t.Errorf("FileOf(%+v) = %q, want %q", a, got, want)
		}
	}
}
