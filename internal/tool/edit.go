// SPDX-License-Identifier: Apache-2.0

package tool

import "errors"

// Edit are the arguments of the tool edit.
type Edit struct {
	Path       string `json:"path" jsonschema:"the file, absolute or relative to the workspace"`
	OldString  string `json:"old_string" jsonschema:"the text to replace, exactly as it stands in the file; it must occur once, unless replace_all is set"`
	NewString  string `json:"new_string" jsonschema:"the text to put in its place"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
	escalation
}

var editTool = define[Edit]("edit",
	"Replace an exact piece of text in a file. The file is either changed as a whole or left as it was.", false)

func (e *Edit) check() error {
	switch e.OldString {
	case "":
		return errors.New("old_string must not be empty: use write to create a file")
	case e.NewString:
		return errors.New("old_string and new_string are the same")
	}
	return checkPath(e.Path)
}
