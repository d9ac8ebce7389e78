// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsession-dev/operator/internal/tool"
)

func TestEdit(t *testing.T) {
	ws, other := t.TempDir(), t.TempDir()
	put(t, filepath.Join(other, "file"), "one two one")
	must(t, os.Symlink(filepath.Join(other, "file"), filepath.Join(ws, "out")))
	must(t, os.Symlink("linked", filepath.Join(ws, "in")))
	must(t, syscall.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	put(t, filepath.Join(ws, "binary"), "one\x00two")
	for name, tc := range map[string]struct {
		path, before, old, new string
		all                    bool
		want, after            string
		status                 int
	}{
		"one place":               {path: "a", before: "one two\n", old: "two", new: "2", want: "edited a (1 place)\n", after: "one 2\n"},
		"none":                    {path: "a", before: "one", old: "two", new: "2", want: "cannot edit a: old_string does not occur", after: "one", status: 1},
		"two":                     {path: "a", before: "one one", old: "one", new: "1", want: "cannot edit a: old_string occurs 2 times", after: "one one", status: 1},
		"two that overlap":        {path: "a", before: "ababa", old: "aba", new: "1", want: "cannot edit a: old_string occurs at overlapping", after: "ababa", status: 1},
		"all":                     {path: "a", before: "one one", old: "one", new: "1", all: true, want: "edited a (2 places)\n", after: "1 1"},
		"over lines":              {path: "a", before: "x\n\ty\nz", old: "x\n\ty", new: "w", want: "edited a", after: "w\nz"},
		"other line ends stay":    {path: "a", before: "x\r\ny\r\n", old: "x\ny", new: "x\nz\ny", want: "edited a", after: "x\r\nz\r\ny\r\n"},
		"to nothing":              {path: "a", before: "one two", old: " two", want: "edited a", after: "one"},
		"through a link":          {path: "in", before: "", old: "l", new: "k", want: "edited in", status: 0},
		"a link that leads out":   {path: "out", old: "two", new: "2", want: "cannot edit out: a symbolic link in it leads out", status: StatusDeniedWrite},
		"one that is not there":   {path: "nope", old: "two", new: "2", want: "cannot edit nope: there is no such file", status: 1},
		"a directory":             {path: ".", old: "two", new: "2", want: "cannot edit .: it is a directory", status: 1},
		"a fifo":                  {path: "fifo", old: "two", new: "2", want: "cannot edit fifo: it is not a regular file", status: 1},
		"what is not text":        {path: "binary", old: "two", new: "2", want: "cannot edit binary: it is not UTF-8 text", status: 1},
		"the proc of a processor": {path: "/proc/self/comm", old: "tools.test", new: "2", want: "cannot edit /proc/self/comm", status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, filepath.Join(ws, "linked"), "l")
			if tc.before != "" {
				put(t, filepath.Join(ws, "a"), tc.before)
				must(t, os.Chmod(filepath.Join(ws, "a"), 0o751))
			}
			args := map[string]any{"path": tc.path, "old_string": tc.old, "new_string": tc.new}
			if tc.all {
				args["replace_all"] = true
			}
			got, status := use(t, ws, "edit", args)
			if !strings.HasPrefix(got, tc.want) || tc.status == 0 && status != 0 || tc.status != 0 && status == 0 || tc.status > 1 && status != tc.status {
				t.Errorf("edit = %d %q, want %d %q", status, got, tc.status, tc.want)
			}
			if tc.after != "" {
				b, err := os.ReadFile(filepath.Join(ws, "a"))
				st, statErr := os.Stat(filepath.Join(ws, "a"))
				if err != nil || statErr != nil || string(b) != tc.after || st.Mode().Perm() != 0o751 {
					t.Errorf("the file has %q and mode %v, want %q (%v, %v)", b, st.Mode(), tc.after, err, statErr)
				}
			}
		})
	}
	if b, _ := os.ReadFile(filepath.Join(other, "file")); string(b) != "one two one" {
		t.Errorf("the file outside has %q", b)
	}
}

// What somebody else has written since the look is not overwritten.
func TestEditOfWhatChanged(t *testing.T) {
	ws := t.TempDir()
	put(t, filepath.Join(ws, "a"), "one")
	root, err := os.OpenRoot(ws)
	must(t, err)
	defer root.Close()
	put(t, filepath.Join(ws, "a"), "another's")
	if err := replaceIf(root, "a", "mine", 0o644, unchanged(root, "a", "one")); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
		t.Errorf("replaceIf() = %v", err)
	}
	b, err := os.ReadFile(filepath.Join(ws, "a"))
	if names, _ := os.ReadDir(ws); err != nil || string(b) != "another's" || len(names) != 1 {
		t.Errorf("the file has %q (%v), %d files are there", b, err, len(names))
	}
}

// An edit is refused where the file is not the version that the caller knows; each tool tells the version
// that there is when it has ended, and only to who asks.
func TestEditOfAVersion(t *testing.T) {
	ws := t.TempDir()
	put(t, filepath.Join(ws, "a"), "one two")
	run := func(name, version string, args map[string]any) (text, now string, status int) {
		b, err := json.Marshal(args)
		must(t, err)
		c, err := tool.Decode(name, b)
		must(t, err)
		var out bytes.Buffer
		status = Run(name, ws, version, bytes.NewReader(c.Canonical), &out)
		said, now := tool.CutVersion(out.Bytes())
		return string(said), now, status
	}
	replace := func(version, old, new string) (string, string, int) {
		return run("edit", version, map[string]any{"path": "a", "old_string": old, "new_string": new})
	}
	text, read, _ := run("read", tool.AnyVersion, map[string]any{"path": "a", "limit": 1})
	if text != "one two" || read != tool.VersionOf("one two") {
		t.Errorf("read = %q, version %q", text, read)
	}
	_, edited, status := replace(read, "two", "2")
	if status != 0 || edited != tool.VersionOf("one 2") {
		t.Errorf("edit of what was read = %d, version %q", status, edited)
	}
	text, now, status := replace(read, "one", "1")
	if status != StatusError || now != "" || !strings.Contains(text, "changed since you read it last; read it again") {
		t.Errorf("edit of an older version = %d %q, version %q", status, text, now)
	}
	if _, now, status := replace(edited, "one", "1"); status != 0 || now != tool.VersionOf("1 2") {
		t.Errorf("edit of what was edited = %d, version %q", status, now)
	}
	if _, now, status := replace(tool.AnyVersion, "1 2", "x"); status != 0 || now != tool.VersionOf("x") {
		t.Errorf("edit of what was never read = %d, version %q", status, now)
	}
	if _, now, _ := run("write", tool.AnyVersion, map[string]any{"path": "b", "content": "new"}); now != tool.VersionOf("new") {
		t.Errorf("write tells the version %q", now)
	}
	if text, now, _ := run("read", "", map[string]any{"path": "b"}); now != "" || text != "new" {
		t.Errorf("read that nobody asked for a version = %q, %q", text, now)
	}
}
