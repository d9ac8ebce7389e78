// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/tool"
)

// maxEditFile is the largest file that is edited, in bytes.
const maxEditFile = 16 << 20

func edit(workspace string, a *tool.Edit, known string) (said, version string, err error) {
	t, name, err := locate(workspace, a.Path)
	if err != nil {
		return "", "", err
	}
	fail := func(err error) (string, string, error) { return "", "", failed("edit", a.Path, StatusDeniedWrite, err) }
	name, _, err = target(t, workspace, name)
	if err != nil {
		return fail(err)
	}
	text, st, err := contents(t, name)
	if err != nil {
		return fail(err)
	}
	if known != "" && known != tool.AnyVersion && known != tool.VersionOf(text) {
		return fail(errors.New("it was changed since you read it last; read it again"))
	}
	mode := st.Mode().Perm()
	if mode&0o200 == 0 {
		return fail(fmt.Errorf("its mode %#o does not let its owner write", mode))
	}
	changed, n, err := exchange(text, a)
	if err != nil {
		return fail(err)
	}
	if err := replaceIf(t, name, changed, mode, unchanged(t, name, text)); err != nil {
		return fail(err)
	}
	note := ""
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		note = "; it had other names, which keep the old content"
	}
	return fmt.Sprintf("edited %s (%s)%s\n", a.Path, places(n), note), tool.VersionOf(changed), nil
}

// unchanged looks whether a file still has a text: somebody else may be at work here.
func unchanged(t tree, name, text string) func() error {
	return func() error {
		if now, _, err := contents(t, name); err != nil || now != text {
			return errors.Join(errors.New("it was changed meanwhile; read it again"), err)
		}
		return nil
	}
}

func exchange(text string, a *tool.Edit) (string, int, error) {
	old, replacement := a.OldString, a.NewString
	n := strings.Count(text, old)
	if n == 0 && strings.Contains(text, "\r\n") && !strings.Contains(old, "\r") {
		// A file with the other line ends keeps them.
		old, replacement = strings.ReplaceAll(old, "\n", "\r\n"), strings.ReplaceAll(strings.ReplaceAll(replacement, "\r\n", "\n"), "\n", "\r\n")
		n = strings.Count(text, old)
	}
	switch {
	case n == 0:
		return "", 0, fmt.Errorf("old_string does not occur in it; read the file and copy the text exactly, white space included")
	case n > 1 && !a.ReplaceAll:
		return "", 0, fmt.Errorf("old_string occurs %d times in it; give more of the text around the place, or set replace_all", n)
	case strings.Index(text, old) != strings.LastIndex(text, old) && !a.ReplaceAll:
		return "", 0, fmt.Errorf("old_string occurs at overlapping places in it; give more of the text around the place")
	}
	return strings.ReplaceAll(text, old, replacement), n, nil
}

func places(n int) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}

// contents reads a regular text file as a whole.
func contents(t tree, name string) (string, fs.FileInfo, error) {
	f, err := t.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	switch {
	case st.IsDir():
		return "", nil, fmt.Errorf("it is a directory")
	case !st.Mode().IsRegular():
		return "", nil, fmt.Errorf("it is not a regular file")
	case st.Size() > maxEditFile:
		return "", nil, fmt.Errorf("its %d bytes are more than %d", st.Size(), maxEditFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxEditFile+1))
	if err != nil {
		return "", nil, err
	}
	if bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return "", nil, fmt.Errorf("it is not UTF-8 text (%d bytes)", len(b))
	}
	return string(b), st, nil
}
