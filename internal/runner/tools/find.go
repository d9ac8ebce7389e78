// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agentsession-dev/operator/internal/tool"
)

// Bounds of looking through a tree.
const (
	maxFound   = 1000   // results
	maxVisited = 200000 // entries looked at
)

// errEnough ends a walk that has found enough.
var errEnough = errors.New("enough")

func glob(workspace string, a *tool.Glob) (string, error) {
	dir, prefix, err := treeAt(workspace, a.Path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	var found []string
	cut, err := walk(dir, func(name string, _ fs.DirEntry) error {
		if !matches(a.Pattern, name) {
			return nil
		}
		if len(found) == maxFound {
			return errEnough
		}
		found = append(found, path.Join(prefix, name))
		return nil
	})
	if err != nil {
		return "", failed("look in", orWorkspace(a.Path), StatusDeniedRead, err)
	}
	if len(found) == 0 {
		return "nothing matches" + cutNote(cut) + "\n", nil
	}
	slices.Sort(found)
	return strings.Join(found, "\n") + "\n" + cutLine(cut, len(found)), nil
}

func cutNote(cut bool) string {
	if cut {
		return fmt.Sprintf(" among the first %d entries; name a directory further down", maxVisited)
	}
	return ""
}

func cutLine(cut bool, n int) string {
	if cut {
		return fmt.Sprintf("[cut after %d results; ask for less]\n", n)
	}
	return ""
}

func orWorkspace(p string) string {
	if p == "" {
		return "."
	}
	return p
}

// treeAt opens a directory as a tree that no link leads out of. prefix is what a name
// in it is called in results: relative to the workspace where it is below it.
func treeAt(workspace, p string) (dir *os.Root, prefix string, err error) {
	full := within(workspace, p)
	fail := func(err error) (*os.Root, string, error) {
		return nil, "", failed("look in", orWorkspace(p), StatusDeniedRead, err)
	}
	// Opening something else, a FIFO for one, might wait for ever.
	if st, err := os.Stat(full); err == nil && !st.IsDir() {
		return fail(syscall.ENOTDIR)
	}
	rel, err := filepath.Rel(workspace, full)
	if err != nil || !filepath.IsLocal(rel) {
		dir, err = os.OpenRoot(full)
		if err != nil {
			return fail(err)
		}
		return dir, full, nil
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fail(err)
	}
	if rel == "." {
		return root, "", nil
	}
	defer root.Close()
	if dir, err = root.OpenRoot(rel); err != nil {
		return fail(err)
	}
	return dir, rel, nil
}

// within is the absolute form of a path that may be relative to the workspace.
func within(workspace, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(workspace, p)
}

// walk visits everything in a tree, without following links and without .git, until
// there is enough. What cannot be read is left out.
func walk(dir *os.Root, visit func(name string, d fs.DirEntry) error) (cut bool, err error) {
	n := 0
	err = fs.WalkDir(dir.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch n++; {
		case err != nil && name == ".":
			return err
		case err != nil || name == ".":
			return nil
		case n > maxVisited:
			return errEnough
		}
		if err := visit(name, d); err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

// matches says whether a path below the tree fits a pattern. A pattern of one name
// fits in every directory.
func matches(pattern, name string) bool {
	if !strings.Contains(pattern, "/") && pattern != "**" {
		name = path.Base(name)
	}
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchParts(pattern, name []string) bool {
	// reached[i]: the first i names are fit by the parts so far.
	reached := make([]bool, len(name)+1)
	reached[0] = true
	for _, part := range pattern {
		next := make([]bool, len(name)+1)
		for i := range reached {
			switch {
			case part == "**":
				next[i] = reached[i] || i > 0 && next[i-1]
			case i > 0 && reached[i-1]:
				ok, err := path.Match(part, name[i-1])
				next[i] = ok && err == nil
			}
		}
		reached = next
	}
	return reached[len(name)]
}
