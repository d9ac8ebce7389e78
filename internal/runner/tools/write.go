// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentsession-dev/operator/internal/tool"
)

// maxLinks is how many symbolic links a path may end in, one behind the other.
const maxLinks = 40

func write(workspace string, a *tool.Write) (string, error) {
	t, name, err := locate(workspace, a.Path)
	if err != nil {
		return "", err
	}
	fail := func(err error) (string, error) { return "", failed("write", a.Path, StatusDeniedWrite, err) }
	name, old, err := target(t, workspace, name)
	if err != nil {
		return fail(err)
	}
	mode := fs.FileMode(0o644)
	if old != nil {
		switch mode = old.Mode().Perm(); {
		case old.IsDir():
			return "", fmt.Errorf("cannot write %s: it is a directory", a.Path)
		case !old.Mode().IsRegular():
			return "", fmt.Errorf("cannot write %s: it is not a regular file", a.Path)
		case mode&0o200 == 0:
			return "", fmt.Errorf("cannot write %s: its mode %#o does not let its owner write", a.Path, mode)
		}
	}
	if err := t.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fail(err)
	}
	if err := replace(t, name, a.Content, mode); err != nil {
		return fail(err)
	}
	return report(a, old), nil
}

func report(a *tool.Write, old fs.FileInfo) string {
	if old == nil {
		return fmt.Sprintf("created %s (%d bytes)\n", a.Path, len(a.Content))
	}
	note := ""
	if st, ok := old.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		note = "; it had other names, which keep the old content"
	}
	return fmt.Sprintf("replaced %s (%d bytes)%s\n", a.Path, len(a.Content), note)
}

// replace writes beside the file and renames, so that a reader sees the old content or
// the new, and other names of the same file (hard links) are not written through.
func replace(t tree, name, content string, mode fs.FileMode) error {
	return replaceIf(t, name, content, mode, func() error { return nil })
}

// replaceIf replaces if a last look finds nothing against it.
func replaceIf(t tree, name, content string, mode fs.FileMode, look func() error) (err error) {
	beside := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%.100s.%s.tmp", filepath.Base(name), rand.Text()[:10]))
	f, err := t.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Remove(beside))
		}
	}()
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := look(); err != nil {
		return err
	}
	return t.Rename(beside, name)
}

// target follows symbolic links at the end of the path, as opening it would: renaming
// onto a link would replace the link. The file may not exist; then old is nil.
func target(t tree, workspace, name string) (end string, old fs.FileInfo, err error) {
	for range maxLinks {
		st, err := t.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			return name, st, nil
		}
		to, err := t.Readlink(name)
		if err != nil {
			return "", nil, err
		}
		name = follow(t, workspace, name, to)
	}
	return "", nil, syscall.ELOOP
}

// follow gives the name that a link stands for. In the workspace's tree an absolute
// target below the workspace is a name like any other.
func follow(t tree, workspace, name, to string) string {
	if !filepath.IsAbs(to) {
		return filepath.Join(filepath.Dir(name), to)
	}
	if _, ok := t.(everything); ok {
		return to
	}
	if rest, ok := strings.CutPrefix(to, workspace+"/"); ok {
		return rest
	}
	return to // os.Root refuses it
}
