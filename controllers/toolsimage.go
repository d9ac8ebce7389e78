// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"path"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// toolsImageOf is why a pod with the session's toolsImage must not be started; nil if it
// may. A pod that runs already is not asked about.
func toolsImageOf(s *v1alpha1.AgentSession, class *v1alpha1.AgentSessionClass) *refusal {
	want, i := s.Spec.ToolsImage, class.Spec.Images
	if want == "" || want == i.Tools || slices.ContainsFunc(i.AllowedTools, func(pattern string) bool { return admits(pattern, want) }) {
		return nil
	}
	allowed := append([]string{i.Tools}, i.AllowedTools...)
	slices.Sort(allowed)
	return refuse(v1alpha1.ReasonToolsImageNotAllowed, "Class %s does not allow the toolsImage %q: create the session anew with one of %s, or have images.allowedTools of the class allow it.",
		class.Name, want, cutLine(strings.Join(slices.Compact(allowed), ", "), 512))
}

// imageParts are an image's name, tag and digest, the last two without what leads to them.
type imageParts struct{ name, tag, digest string }

// partsOf takes an image, or a pattern, apart. Behind the last slash there is no registry's
// port: what follows a colon is the tag.
func partsOf(image string) (p imageParts) {
	image, p.digest, _ = strings.Cut(image, "@")
	last := strings.LastIndexByte(image, '/') + 1
	base, tag, _ := strings.Cut(image[last:], ":")
	p.name, p.tag = image[:last]+base, tag
	return p
}

// admits reports whether a pattern of images.allowedTools names an image. What the pattern
// says of tag and digest must be so. An image's digest decides what is pulled and its tag
// does not, so a pattern that says something of the tag alone admits no digest.
func admits(pattern, image string) bool {
	p, i := partsOf(pattern), partsOf(image)
	switch {
	case !matches(p.name, i.name):
		return false
	case p.tag == "" && p.digest == "":
		return true
	case p.digest == "" && i.digest != "":
		return false
	}
	return (p.tag == "" || i.tag != "" && matches(p.tag, i.tag)) &&
		(p.digest == "" || i.digest != "" && matches(p.digest, i.digest))
}

// matches compares by path.Match, whose * ends at a slash. Of what else has a meaning there
// the API admits nothing in a pattern; a pattern that is malformed matches nothing.
func matches(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return ok && err == nil && !strings.ContainsAny(pattern, `?[\`)
}
