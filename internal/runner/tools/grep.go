// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/tool"
)

// Bounds of grep.
const (
	maxMatches  = 500
	maxGrepFile = 8 << 20 // larger files are left out
	maxGrepText = 128 << 10
	maxGrepLine = 400 // bytes of a line that are shown
)

// finder collects the lines that match.
type finder struct {
	expr    *regexp.Regexp
	out     strings.Builder
	matches int
	skipped int // files that are too large
}

func grep(workspace string, a *tool.Grep) (string, error) {
	expr, err := a.Expression()
	if err != nil {
		return "", err
	}
	f := &finder{expr: expr}
	cut, err := f.look(workspace, a)
	if err != nil {
		return "", err
	}
	if f.matches == 0 {
		f.out.WriteString("nothing matches" + cutNote(cut) + "\n")
	} else if cut {
		f.out.WriteString(cutLine(true, f.matches))
	}
	if f.skipped > 0 {
		fmt.Fprintf(&f.out, "[%d files of more than %d bytes were left out]\n", f.skipped, maxGrepFile)
	}
	return f.out.String(), nil
}

func (f *finder) look(workspace string, a *tool.Grep) (cut bool, err error) {
	if st, err := os.Stat(within(workspace, a.Path)); err == nil && !st.IsDir() {
		return f.oneFile(workspace, a.Path)
	}
	dir, prefix, err := treeAt(workspace, a.Path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	cut, err = walk(dir, func(name string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || a.Glob != "" && !matches(a.Glob, name) {
			return nil
		}
		return f.file(dir, name, path.Join(prefix, name))
	})
	if err != nil {
		return false, failed("look in", orWorkspace(a.Path), StatusDeniedRead, err)
	}
	return cut, nil
}

// oneFile looks through a file that was asked for by name: there, trouble is an error.
func (f *finder) oneFile(workspace, p string) (cut bool, err error) {
	t, name, err := locate(workspace, p)
	if err != nil {
		return false, err
	}
	text, _, err := contents(t, name)
	if err != nil {
		return false, failed("look in", p, StatusDeniedRead, err)
	}
	return errors.Is(f.text(text, p), errEnough), nil
}

// file looks through one file. What cannot be read, and what is not text, is left out.
func (f *finder) file(dir *os.Root, name, shown string) error {
	file, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	if st.Size() > maxGrepFile {
		f.skipped++
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(file, maxGrepFile))
	if err != nil || bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return nil
	}
	return f.text(string(b), shown)
}

func (f *finder) text(text, shown string) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if !f.expr.MatchString(line) {
			continue
		}
		if f.matches == maxMatches || f.out.Len() > maxGrepText {
			return errEnough
		}
		f.matches++
		fmt.Fprintf(&f.out, "%s:%d:%s\n", shown, number, shorten(line))
	}
	return nil
}

// shorten cuts a line between characters.
func shorten(line string) string {
	if len(line) <= maxGrepLine {
		return line
	}
	n := maxGrepLine
	for !utf8.RuneStart(line[n]) {
		n--
	}
	return line[:n] + "…"
}
