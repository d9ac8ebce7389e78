// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"regexp"
)

// Grep are the arguments of the tool grep.
type Grep struct {
	Pattern    string `json:"pattern" jsonschema:"a regular expression (RE2 syntax) to find within lines"`
	Path       string `json:"path,omitempty" jsonschema:"the file or directory to look in, absolute or relative to the workspace; the workspace if not given"`
	Glob       string `json:"glob,omitempty" jsonschema:"look only in files whose name matches, such as *.go"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"take upper and lower case as the same"`
}

var grepTool = define[Grep]("grep",
	"Find lines in text files. Results are cut when there are many. Binary files are left out, symbolic links are not followed.", true)

// Expression is the compiled pattern.
func (g *Grep) Expression() (*regexp.Regexp, error) {
	if g.IgnoreCase {
		return regexp.Compile("(?i)" + g.Pattern)
	}
	return regexp.Compile(g.Pattern)
}

func (g *Grep) check() error {
	if _, err := g.Expression(); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if g.Glob != "" {
		if err := checkPattern(g.Glob); err != nil {
			return fmt.Errorf("glob: %w", err)
		}
	}
	return checkDir(g.Path)
}
