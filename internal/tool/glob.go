// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Glob are the arguments of the tool glob.
type Glob struct {
	Pattern string `json:"pattern" jsonschema:"such as *.go or cmd/**/main.go: * and ? stay within a name, ** stands for any number of directories"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to look in, absolute or relative to the workspace; the workspace if not given"`
}

var globTool = define[Glob]("glob",
	"Find files by name. A pattern without a slash is looked for in every directory. Symbolic links are listed and not followed.", true)

func (g *Glob) check() error {
	if err := checkPattern(g.Pattern); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	return checkDir(g.Path)
}

func checkPattern(p string) error {
	switch {
	case p == "":
		return errors.New("it must not be empty")
	case strings.HasPrefix(p, "/"):
		return errors.New("it must be relative: give the directory as path")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return errors.New("it must not contain ..: give the directory as path")
		}
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
	}
	return nil
}

func checkDir(p string) error {
	if strings.ContainsRune(p, 0) {
		return errors.New("path must not contain a NUL character")
	}
	return nil
}
