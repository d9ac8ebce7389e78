// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// searched is a workspace with what there is to find, and a way out of it.
func searched(t *testing.T) (ws, other string) {
	t.Helper()
	ws, other = t.TempDir(), t.TempDir()
	put(t, filepath.Join(other, "secret.go"), "needle outside\n")
	put(t, filepath.Join(ws, "main.go"), "package main\n// needle\n")
	put(t, filepath.Join(ws, "cmd/tool/main.go"), "Needle\r\nneedle twice needle\r\n")
	put(t, filepath.Join(ws, "README"), "nothing here")
	put(t, filepath.Join(ws, "binary.go"), "needle\x00")
	put(t, filepath.Join(ws, "latin.go"), "needle caf\xe9")
	put(t, filepath.Join(ws, ".git/config.go"), "needle in git")
	must(t, os.Symlink(other, filepath.Join(ws, "out")))
	must(t, os.Symlink(filepath.Join(other, "secret.go"), filepath.Join(ws, "out.go")))
	must(t, syscall.Mkfifo(filepath.Join(ws, "fifo.go"), 0o644))
	return ws, other
}

func TestGlob(t *testing.T) {
	ws, other := searched(t)
	for name, tc := range map[string]struct {
		pattern, path, want string
		status              int
	}{
		"a name":                     {pattern: "main.go", want: "cmd/tool/main.go\nmain.go\n"},
		"names":                      {pattern: "m*.go", want: "cmd/tool/main.go\nmain.go\n"},
		"a path":                     {pattern: "cmd/*/main.go", want: "cmd/tool/main.go\n"},
		"any depth":                  {pattern: "**/main.go", want: "cmd/tool/main.go\nmain.go\n"},
		"any depth below":            {pattern: "cmd/**", want: "cmd\ncmd/tool\ncmd/tool/main.go\n"},
		"a star stays in its name":   {pattern: "cmd/*", want: "cmd/tool\n"},
		"below a directory":          {pattern: "*.go", path: "cmd", want: "cmd/tool/main.go\n"},
		"outside by its own path":    {pattern: "*.go", path: other, want: filepath.Join(other, "secret.go") + "\n"},
		"a link is not followed":     {pattern: "secret.go", want: "nothing matches\n"},
		"a link that leads out":      {pattern: "*", path: "out", want: "cannot look in out: a symbolic link in it leads out", status: StatusDeniedRead},
		"nothing":                    {pattern: "*.rs", want: "nothing matches\n"},
		"a directory that is none":   {pattern: "*", path: "README", want: "cannot look in README: not a directory", status: 1},
		"a fifo":                     {pattern: "*", path: "fifo.go", want: "cannot look in fifo.go: not a directory", status: 1},
		"a directory that is absent": {pattern: "*", path: "nope", want: "cannot look in nope: there is no such file or directory", status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			args := map[string]any{"pattern": tc.pattern}
			if tc.path != "" {
				args["path"] = tc.path
			}
			got, status := use(t, ws, "glob", args)
			if status != tc.status || !strings.HasPrefix(got, tc.want) || status == 0 && got != tc.want {
				t.Errorf("glob = %d %q, want %d %q", status, got, tc.status, tc.want)
			}
		})
	}
}

func TestGrep(t *testing.T) {
	ws, other := searched(t)
	for name, tc := range map[string]struct {
		args   map[string]any
		want   string
		status int
	}{
		"everywhere":            {map[string]any{"pattern": "needle"}, "cmd/tool/main.go:2:needle twice needle\nmain.go:2:// needle\n", 0},
		"in any case":           {map[string]any{"pattern": "^needle$", "ignore_case": true}, "cmd/tool/main.go:1:Needle\n", 0},
		"below a directory":     {map[string]any{"pattern": "needle", "path": "cmd"}, "cmd/tool/main.go:2:needle twice needle\n", 0},
		"in one file":           {map[string]any{"pattern": "needle", "path": "main.go"}, "main.go:2:// needle\n", 0},
		"in some files":         {map[string]any{"pattern": "n", "glob": "READ*"}, "README:1:nothing here\n", 0},
		"outside by its path":   {map[string]any{"pattern": "needle", "path": other}, filepath.Join(other, "secret.go") + ":1:needle outside\n", 0},
		"an empty line":         {map[string]any{"pattern": "^$", "path": "README"}, "nothing matches\n", 0},
		"nothing":               {map[string]any{"pattern": "absent"}, "nothing matches\n", 0},
		"a link that leads out": {map[string]any{"pattern": "needle", "path": "out.go"}, "cannot look in out.go: a symbolic link in it leads out", StatusDeniedRead},
		"a binary file by name": {map[string]any{"pattern": "needle", "path": "binary.go"}, "cannot look in binary.go: it is not UTF-8 text", 1},
		"a fifo by name":        {map[string]any{"pattern": "needle", "path": "fifo.go"}, "cannot look in fifo.go: it is not a regular file", 1},
		"what is not there":     {map[string]any{"pattern": "needle", "path": "nope"}, "cannot look in nope: there is no such file", 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, status := use(t, ws, "grep", tc.args)
			if status != tc.status || !strings.HasPrefix(got, tc.want) || status == 0 && got != tc.want {
				t.Errorf("grep = %d %q, want %d %q", status, got, tc.status, tc.want)
			}
		})
	}
}

func TestResultsAreBounded(t *testing.T) {
	ws := t.TempDir()
	put(t, filepath.Join(ws, "many"), strings.Repeat("needle\n", maxMatches+10))
	put(t, filepath.Join(ws, "wide"), "wide "+strings.Repeat("ä", maxGrepLine))
	got, _ := use(t, ws, "grep", map[string]any{"pattern": "needle"})
	if n := strings.Count(got, "many:"); n != maxMatches || !strings.Contains(got, fmt.Sprintf("[cut after %d results", maxMatches)) {
		t.Errorf("%d matches are shown; the end is %q", n, got[len(got)-60:])
	}
	if got, _ := use(t, ws, "grep", map[string]any{"pattern": "wide"}); len(got) > maxGrepLine+40 || !strings.HasSuffix(got, "ä…\n") {
		t.Errorf("a wide line has %d bytes: %q", len(got), got)
	}
	for i := range maxFound + 10 {
		put(t, filepath.Join(ws, "dir", fmt.Sprint(i)), "")
	}
	if got, _ := use(t, ws, "glob", map[string]any{"pattern": "dir/*"}); strings.Count(got, "dir/") != maxFound || !strings.Contains(got, "[cut after") {
		t.Errorf("%d names are shown", strings.Count(got, "dir/"))
	}
}
