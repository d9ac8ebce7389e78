// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"strings"
)

// Write are the arguments of the tool write.
type Write struct {
	Path    string `json:"path" jsonschema:"the file, absolute or relative to the workspace"`
	Content string `json:"content" jsonschema:"the whole new content of the file"`
	escalation
}

var writeTool = define[Write]("write",
	"Create a text file, or replace one as a whole. The file is either written whole or left as it was.", false)

func (w *Write) check() error { return checkPath(w.Path) }

func checkPath(p string) error {
	if p == "" {
		return errors.New("path must not be empty")
	}
	if strings.ContainsRune(p, 0) {
		return errors.New("path must not contain a NUL character")
	}
	return nil
}
