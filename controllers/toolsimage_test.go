// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

func TestWhichImagesAPatternAdmits(t *testing.T) {
	sha := "@sha256:" + strings.Repeat("0a", 32)
	for name, tc := range map[string]struct {
		pattern, image string
		want           bool
	}{
		"the same":                               {"debian:13", "debian:13", true},
		"any tag, where it says none":            {"registry.example/team/go", "registry.example/team/go:1.26", true},
		"any digest, where it says none":         {"registry.example/team/go", "registry.example/team/go:1.26" + sha, true},
		"one part":                               {"registry.example/team/*", "registry.example/team/go", true},
		"one part with a tag":                    {"registry.example/team/*", "registry.example/team/go:1.26", true},
		"two parts for one":                      {"registry.example/team/*", "registry.example/team/a/b", false},
		"no part for one":                        {"registry.example/team/*", "registry.example/team", false},
		"a part in the middle":                   {"registry.example/*/go", "registry.example/team/go", true},
		"a piece of a part":                      {"registry.example/team/go-*", "registry.example/team/go-lint:2", true},
		"another piece of a part":                {"registry.example/team/go-*", "registry.example/team/golint", false},
		"another registry":                       {"registry.example/team/*", "registry.example.evil/team/go", false},
		"another registry before it":             {"registry.example/team/*", "evil/registry.example/team/go", false},
		"the registry as a name":                 {"registry.example/team/*", "evil.example/registry.example/team/go", false},
		"another port":                           {"registry.example:5000/team/*", "registry.example:5001/team/go", false},
		"the port of the registry":               {"registry.example:5000/team/*", "registry.example:5000/team/go:1", true},
		"a port is no tag":                       {"registry.example/team:*", "registry.example:5000/team", false},
		"the registry in capitals":               {"registry.example/team/*", "Registry.example/team/go", false},
		"the long form of a short name":          {"debian:*", "docker.io/library/debian:13", false},
		"a short name for the long form":         {"docker.io/library/debian", "debian", false},
		"a registry for a short name":            {"*", "evil.example/debian", false},
		"a short name":                           {"*", "debian:13", true},
		"a tag":                                  {"debian:13*", "debian:13.1-slim", true},
		"another tag":                            {"debian:13*", "debian:12", false},
		"no tag, where it says one":              {"debian:*", "debian", false},
		"a tag that says nothing":                {"debian:13*", "debian:13.1" + sha, false},
		"a digest for a tag":                     {"debian:13*", "debian" + sha, false},
		"the digest":                             {"debian" + sha, "debian" + sha, true},
		"the digest, whatever the tag says":      {"debian" + sha, "debian:13" + sha, true},
		"another digest":                         {"debian" + sha, "debian@sha256:" + strings.Repeat("0b", 32), false},
		"no digest, where it says one":           {"debian" + sha, "debian:13", false},
		"any digest":                             {"debian@sha256:*", "debian" + sha, true},
		"any digest, none there":                 {"debian@sha256:*", "debian:13", false},
		"tag and digest":                         {"debian:13*@sha256:*", "debian:13.1" + sha, true},
		"the digest alone, where it says both":   {"debian:13*@sha256:*", "debian" + sha, false},
		"what path.Match knows, and the API not": {"debian:1[0-9]", "debian:13", false},
		"any character, as path.Match has it":    {"debian:1?", "debian:13", false},
		"a quoted character":                     {`debian:1\3`, "debian:13", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := admits(tc.pattern, tc.image); got != tc.want {
				t.Errorf("admits(%q, %q) = %t, want %t", tc.pattern, tc.image, got, tc.want)
			}
		})
	}
}

// Whatever stands for the *: registry and path of an admitted image are those of the pattern,
// part by part.
func TestAnAdmittedImageIsWhereThePatternSays(t *testing.T) {
	parts := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,2}|\*|[a-z]\*|reg\.example(:50)?`), 1, 4)
	rest := rapid.SampledFrom([]string{"", ":1", ":v*", "@sha256:0a", ":1@sha256:*"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(parts.Draw(t, "pattern"), "/")
		image := strings.ReplaceAll(strings.Join(parts.Draw(t, "image"), "/"), "*", "x")
		if rapid.Bool().Draw(t, "alike") { // else hardly any would be admitted
			image = strings.ReplaceAll(pattern, "*", rapid.SampledFrom([]string{"x", "x/y", "x:5", "", "x@y"}).Draw(t, "star"))
		}
		pattern, image = pattern+rest.Draw(t, "of the pattern"), image+strings.ReplaceAll(rest.Draw(t, "of the image"), "*", "1")
		if !admits(pattern, image) {
			return
		}
		want, got := strings.Split(partsOf(pattern).name, "/"), strings.Split(partsOf(image).name, "/")
		if len(want) != len(got) {
			t.Fatalf("%q admits %q, of %d parts", pattern, image, len(got))
		}
		for n := range want {
			before, after, star := strings.Cut(want[n], "*")
			if alike := strings.HasPrefix(got[n], before) && strings.HasSuffix(got[n], after); !alike || !star && want[n] != got[n] {
				t.Fatalf("%q admits %q, whose part %q is not %q", pattern, image, got[n], want[n])
			}
		}
	})
}

func TestToolsImageChoice(t *testing.T) {
	w := settled()
	w.class.Spec.Images.Tools = "registry.example/tools:1"
	w.session.Spec.ToolsImage = "registry.example/team/go:1"
	w.resolve()
	if w.refused != nil {
		t.Fatalf("refused %+v although its pod is there", w.refused)
	}
	w.pod = nil
	w.resolve()
	if w.refused == nil || w.refused.reason != v1alpha1.ReasonToolsImageNotAllowed || !strings.Contains(w.refused.message, "one of registry.example/tools:1,") {
		t.Fatalf("refused %+v, want ToolsImageNotAllowed naming what is allowed", w.refused)
	}
	w.class.Spec.Images.AllowedTools = []string{"registry.example/team/*"}
	w.resolve()
	if w.refused != nil {
		t.Errorf("refused %+v although a pattern admits it", w.refused)
	}
	w.class.Spec.Images = v1alpha1.Images{Tools: "registry.example/team/go:1"}
	w.resolve()
	if w.refused != nil {
		t.Errorf("refused %+v although it is the class's own", w.refused)
	}
}
