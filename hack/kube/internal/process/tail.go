// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"io"
	"os"
	"strings"
)

const tailBytes = 64 << 10

// Tail is the last n lines of a log, indented, or what kept it from being read.
func Tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return "    (no log: " + err.Error() + ")"
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-tailBytes), io.SeekStart)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return "    (" + err.Error() + ")"
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "    " + strings.Join(lines, "\n    ")
}
