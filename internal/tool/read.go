// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"strings"
)

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

// Bounds of what is read at once.
const (
	MaxReadText  = 128 << 10 // bytes
	MaxReadLines = 2000
)

// Part cuts what was asked for out of a text and says so where it is not the whole.
func (r *Read) Part(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	first := max(r.Offset, 1)
	limit := MaxReadLines
	if r.Limit > 0 {
		limit = min(r.Limit, MaxReadLines)
	}
	if first > len(lines) {
		if len(lines) == 0 && first == 1 {
			return ""
		}
		return fmt.Sprintf("[the file has %d lines; there is no line %d]\n", len(lines), first)
	}
	var b strings.Builder
	last := first - 1
	for _, l := range lines[first-1 : min(len(lines), first-1+limit)] {
		if b.Len()+len(l) > MaxReadText {
			break
		}
		b.WriteString(l)
		last++
	}
	if last < first {
		return fmt.Sprintf("[line %d alone has more than %d bytes; look at it with bash]\n", first, MaxReadText)
	}
	if first > 1 || last < len(lines) {
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[lines %d to %d of %d]\n", first, last, len(lines))
	}
	return b.String()
}
