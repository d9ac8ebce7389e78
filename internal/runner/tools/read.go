// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/tool"
)

// Bounds of read.
const (
	maxReadFile  = 16 << 20 // bytes of a file that is looked at
	maxReadText  = 128 << 10
	maxReadLines = 2000
)

func read(workspace string, a *tool.Read) (string, error) {
	t, name, err := locate(workspace, a.Path)
	if err != nil {
		return "", err
	}
	// Non-blocking: opening a FIFO would wait for a writer.
	f, err := t.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", failed("read", a.Path, StatusDeniedRead, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", failed("read", a.Path, StatusDeniedRead, err)
	}
	switch {
	case st.IsDir():
		return "", fmt.Errorf("cannot read %s: it is a directory; list it with bash", a.Path)
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("cannot read %s: it is not a regular file", a.Path)
	case st.Size() > maxReadFile:
		return "", fmt.Errorf("cannot read %s: its %d bytes are more than %d; look at a part of it with bash", a.Path, st.Size(), maxReadFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxReadFile+1))
	if err != nil {
		return "", failed("read", a.Path, StatusDeniedRead, err)
	}
	if bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return "", fmt.Errorf("cannot read %s: it is not UTF-8 text (%d bytes); look at it with bash", a.Path, len(b))
	}
	return part(string(b), a), nil
}

// part cuts what was asked for out of a text and says so where it is not the whole.
func part(text string, a *tool.Read) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	first := max(a.Offset, 1)
	limit := maxReadLines
	if a.Limit > 0 {
		limit = min(a.Limit, maxReadLines)
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
		if b.Len()+len(l) > maxReadText {
			break
		}
		b.WriteString(l)
		last++
	}
	if last < first {
		return fmt.Sprintf("[line %d alone has more than %d bytes; look at it with bash]\n", first, maxReadText)
	}
	if first > 1 || last < len(lines) {
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[lines %d to %d of %d]\n", first, last, len(lines))
	}
	return b.String()
}
