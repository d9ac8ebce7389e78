// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/tool"
)

func use(t *testing.T, workspace, name string, args map[string]any) (string, int) {
	t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tool.Decode(name, b); err == nil { // the agent makes them canonical; what it refuses comes as it is
		b = c.Canonical
	}
	var out bytes.Buffer
	status := Run(name, workspace, "", bytes.NewReader(b), &out)
	return out.String(), status
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	ws, other := t.TempDir(), t.TempDir()
	put(t, filepath.Join(ws, "file"), "one\ntwo\nthree\n")
	put(t, filepath.Join(ws, "unended"), "one\ntwo")
	put(t, filepath.Join(ws, "empty"), "")
	put(t, filepath.Join(ws, "binary"), "a\x00b")
	put(t, filepath.Join(ws, "latin"), "caf\xe9")
	put(t, filepath.Join(ws, "long"), strings.Repeat("line\n", tool.MaxReadLines+5))
	put(t, filepath.Join(ws, "wide"), strings.Repeat("x", tool.MaxReadText+1))
	put(t, filepath.Join(other, "file"), "outside\n")
	must(t, os.Truncate(filepath.Join(ws, "binary"), 3))
	must(t, os.WriteFile(filepath.Join(ws, "huge"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(ws, "huge"), maxReadFile+1))
	must(t, os.Symlink(filepath.Join(other, "file"), filepath.Join(ws, "out")))
	must(t, os.Symlink("file", filepath.Join(ws, "in")))
	must(t, syscall.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	for name, tc := range map[string]struct {
		args   map[string]any
		want   string // how the output begins; the whole, where it ends with "$"
		status int
	}{
		"a file":                 {map[string]any{"path": "file"}, "one\ntwo\nthree\n$", 0},
		"by its absolute path":   {map[string]any{"path": filepath.Join(ws, "file")}, "one\ntwo\nthree\n$", 0},
		"outside":                {map[string]any{"path": filepath.Join(other, "file")}, "outside\n$", 0},
		"through a link":         {map[string]any{"path": "in"}, "one\n", 0},
		"a link that leads out":  {map[string]any{"path": "out"}, "cannot read out: a symbolic link in it leads out", StatusDeniedRead},
		"without a last newline": {map[string]any{"path": "unended"}, "one\ntwo$", 0},
		"an empty one":           {map[string]any{"path": "empty"}, "$", 0},
		"a part":                 {map[string]any{"path": "file", "offset": 2, "limit": 1}, "two\n[lines 2 to 2 of 3]\n$", 0},
		"behind the end":         {map[string]any{"path": "file", "offset": 9}, "[the file has 3 lines; there is no line 9]\n$", 0},
		"a line too wide":        {map[string]any{"path": "wide"}, "[line 1 alone has more than", 0},
		"nothing there":          {map[string]any{"path": "nope"}, "cannot read nope: there is no such file or directory$", 1},
		"a directory":            {map[string]any{"path": "."}, "cannot read .: it is a directory", 1},
		"a fifo":                 {map[string]any{"path": "fifo"}, "cannot read fifo: it is not a regular file$", 1},
		"a device":               {map[string]any{"path": "/dev/zero"}, "cannot read /dev/zero: it is not a regular file$", 1},
		"binary":                 {map[string]any{"path": "binary"}, "cannot read binary: it is not UTF-8 text (3 bytes)", 1},
		"another encoding":       {map[string]any{"path": "latin"}, "cannot read latin: it is not UTF-8 text", 1},
		"too large":              {map[string]any{"path": "huge"}, "cannot read huge: its 16777217 bytes are more than", 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, status := use(t, ws, "read", tc.args)
			whole, exact := strings.CutSuffix(tc.want, "$")
			if status != tc.status || !strings.HasPrefix(got, whole) || exact && got != whole {
				t.Errorf("read = %d %.200q, want %d %q", status, got, tc.status, tc.want)
			}
		})
	}
	got, _ := use(t, ws, "read", map[string]any{"path": "long"})
	if !strings.HasSuffix(got, fmt.Sprintf("[lines 1 to %d of %d]\n", tool.MaxReadLines, tool.MaxReadLines+5)) {
		t.Errorf("a long file ends with %q", got[len(got)-60:])
	}
}

func TestWrite(t *testing.T) {
	ws, other := t.TempDir(), t.TempDir()
	put(t, filepath.Join(other, "file"), "outside")
	put(t, filepath.Join(ws, "script"), "old")
	put(t, filepath.Join(ws, "locked"), "old")
	must(t, os.Chmod(filepath.Join(ws, "script"), 0o750))
	must(t, os.Chmod(filepath.Join(ws, "locked"), 0o444))
	must(t, os.Link(filepath.Join(other, "file"), filepath.Join(ws, "second-name")))
	must(t, os.Symlink(filepath.Join(other, "file"), filepath.Join(ws, "out")))
	must(t, os.Symlink(other, filepath.Join(ws, "out-dir")))
	must(t, os.Symlink("sub/target", filepath.Join(ws, "in")))
	must(t, os.Symlink("loop", filepath.Join(ws, "loop")))
	must(t, os.Symlink(filepath.Join(ws, "absolute"), filepath.Join(ws, "in-absolute")))
	must(t, syscall.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	for name, tc := range map[string]struct {
		path   string
		want   string
		status int
		file   string // that has the content afterwards
	}{
		"a new file":                  {"new", "created new (3 bytes)", 0, "new"},
		"with directories":            {"a/b/c", "created a/b/c", 0, "a/b/c"},
		"an old one":                  {"script", "replaced script (3 bytes)", 0, "script"},
		"through a link":              {"in", "created in", 0, "sub/target"},
		"through an absolute link":    {"in-absolute", "created in-absolute", 0, "absolute"},
		"one with a second name":      {"second-name", "replaced second-name (3 bytes); it had other names", 0, "second-name"},
		"outside by its own path":     {filepath.Join(other, "new"), "created", 0, filepath.Join(other, "new")},
		"a link that leads out":       {"out", "cannot write out: a symbolic link in it leads out", StatusDeniedWrite, ""},
		"a directory that leads out":  {"out-dir/new", "cannot write out-dir/new: a symbolic link in it leads out", StatusDeniedWrite, ""},
		"a link to itself":            {"loop", "cannot write loop: too many levels", 1, ""},
		"a directory":                 {"sub", "cannot write sub: it is a directory", 1, ""},
		"a fifo":                      {"fifo", "cannot write fifo: it is not a regular file", 1, ""},
		"below a file":                {"script/new", "cannot write script/new: not a directory", 1, ""},
		"one that is marked as fixed": {"locked", "cannot write locked: its mode 0444", 1, ""},
		"where nothing can be made":   {"/proc/new", "cannot write /proc/new", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a directory" {
				must(t, os.MkdirAll(filepath.Join(ws, "sub"), 0o755))
			}
			got, status := use(t, ws, "write", map[string]any{"path": tc.path, "content": "new"})
			if status != tc.status || !strings.HasPrefix(got, tc.want) {
				t.Errorf("write = %d %q, want %d %q", status, got, tc.status, tc.want)
			}
			if tc.file == "" {
				return
			}
			file := tc.file
			if !filepath.IsAbs(file) {
				file = filepath.Join(ws, file)
			}
			if b, err := os.ReadFile(file); err != nil || string(b) != "new" {
				t.Errorf("%s has %q (%v)", file, b, err)
			}
		})
	}
	if b, _ := os.ReadFile(filepath.Join(other, "file")); string(b) != "outside" {
		t.Errorf("the file outside has %q", b)
	}
	if st, err := os.Stat(filepath.Join(ws, "script")); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("the mode was not kept: %v, %v", st.Mode(), err)
	}
	names, err := filepath.Glob(filepath.Join(ws, ".*"))
	if diff := cmp.Diff([]string(nil), names); diff != "" || err != nil {
		t.Errorf("left behind (%v):\n%s", err, diff)
	}
}

// Looking where a path leads and then writing there would lose against this.
func TestWriteAgainstASwapper(t *testing.T) {
	ws, other := t.TempDir(), t.TempDir()
	put(t, filepath.Join(other, "file"), "outside")
	put(t, filepath.Join(ws, "dir", "file"), "inside")
	must(t, os.Symlink(other, filepath.Join(ws, "trap")))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(ws, "dir"), unix.AT_FDCWD, filepath.Join(ws, "trap"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	written := 0
	for range 3000 {
		if _, status := use(t, ws, "write", map[string]any{"path": "dir/file", "content": "new"}); status == StatusOK {
			written++
		}
	}
	close(stop)
	<-stopped
	if b, err := os.ReadFile(filepath.Join(other, "file")); err != nil || string(b) != "outside" {
		t.Errorf("the file outside has %q (%v)", b, err)
	}
	if names, err := os.ReadDir(other); err != nil || len(names) != 1 {
		t.Errorf("%d files are outside (%v), want 1", len(names), err)
	}
	if written == 0 {
		t.Error("not one write came through: nothing was tried")
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	for name, args := range map[string]map[string]any{
		"write": {"path": "x"},
		"read":  {"file": "x"},
		"bash":  {"command": "true"},
	} {
		if got, status := use(t, t.TempDir(), name, args); status != StatusError || got == "" {
			t.Errorf("%s = %d %q", name, status, got)
		}
	}
}
