// SPDX-License-Identifier: Apache-2.0

package tool

import "errors"

// Read are the arguments of the tool read.
type Read struct {
	Path   string `json:"path" jsonschema:"the file, absolute or relative to the workspace"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line wanted, counted from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines at most"`
}

var readTool = define[Read]("read",
	"Read a UTF-8 text file. Long files are cut; ask for a part with offset and limit.", true)

func (r *Read) check() error {
	if r.Offset < 0 || r.Limit < 0 {
		return errors.New("offset and limit must not be negative")
	}
	return checkPath(r.Path)
}
