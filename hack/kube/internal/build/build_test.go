// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sources(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tree() map[string]string {
	return map[string]string{
		"go.mod": "module m\n\nrequire (\n\tk8s.io/kubernetes v1.37.2\n\tgo.etcd.io/etcd/server/v3 v3.7.0\n)\n",
		"go.sum": "", "cmd/pause/main.go": "package main", "main.go": "package main",
	}
}

// The place of a build changes with everything it is made from, and with nothing else.
func TestPlace(t *testing.T) {
	place := func(change func(map[string]string)) string {
		files := tree()
		change(files)
		p, err := NewPlan(sources(t, files), "/cache")
		if err != nil {
			t.Fatal(err)
		}
		return p.Root
	}
	base := place(func(map[string]string) {})
	if !strings.HasPrefix(base, "/cache/v1.37.2-") {
		t.Errorf("place %s does not name the version", base)
	}
	for name, tc := range map[string]struct {
		same   bool
		change func(map[string]string)
	}{
		"nothing":         {true, func(map[string]string) {}},
		"the tool":        {true, func(f map[string]string) { f["main.go"] += "\n" }},
		"a test":          {true, func(f map[string]string) { f["cmd/pause/main_test.go"] = "package main" }},
		"a program":       {false, func(f map[string]string) { f["cmd/pause/main.go"] += "\n" }},
		"another program": {false, func(f map[string]string) { f["cmd/other/main.go"] = "package main" }},
		"a version":       {false, func(f map[string]string) { f["go.mod"] = strings.Replace(f["go.mod"], "v3.7.0", "v3.7.1", 1) }},
		"a checksum":      {false, func(f map[string]string) { f["go.sum"] = "x" }},
	} {
		if got := place(tc.change); (got == base) != tc.same {
			t.Errorf("%s changed: same place %t, want %t", name, got == base, tc.same)
		}
	}
}

// The version in the binaries is the one that go.mod requires.
func TestLinkerFlags(t *testing.T) {
	p, err := NewPlan(sources(t, tree()), "/cache")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gitVersion=v1.37.2", "gitMajor=1 ", "gitMinor=37"} {
		if got := p.linkerFlags(); !strings.Contains(got, want) {
			t.Errorf("linkerFlags() = %s, want %s in it", got, want)
		}
	}
}

// A build that was killed leaves nothing that counts as built, and the next one
// clears it away and builds all; then there is nothing left to do.
func TestRun(t *testing.T) {
	before := Programs
	t.Cleanup(func() { Programs = before })
	Programs = []Program{{Name: "pause", Aliases: []string{"rest"}}}
	files := tree()
	files["go.mod"] = "module m\n\ngo 1.26.0\n"
	files["cmd/pause/main.go"] = "package main\n\nfunc main() {}\n"
	p, err := NewPlan(sources(t, files), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.BinDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(p.BinDir(), "pause"+asideSuffix)
	if err := os.WriteFile(half, []byte("half"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if p.Done() {
		t.Fatal("done before it was run")
	}
	if err := p.Run(t.Context(), NewProgress(&out)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half-built program is still there: %v", err)
	}
	if !p.Done() || !strings.Contains(out.String(), "[1/1] building pause ...") {
		t.Errorf("done %t, progress:\n%s", p.Done(), &out)
	}
	out.Reset()
	if err := p.Run(t.Context(), NewProgress(&out)); err != nil || out.Len() > 0 {
		t.Errorf("a second run: %v, says %q", err, &out)
	}
}

// What does not compile is reported with the compiler's words, and leaves nothing.
func TestRunFails(t *testing.T) {
	before := Programs
	t.Cleanup(func() { Programs = before })
	Programs = []Program{{Name: "pause"}}
	files := tree()
	files["go.mod"] = "module m\n\ngo 1.26.0\n"
	files["cmd/pause/main.go"] = "package main\n\nfunc main() { undefinedThing() }\n"
	p, err := NewPlan(sources(t, files), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = p.Run(t.Context(), NewProgress(new(bytes.Buffer)))
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") {
		t.Errorf("Run() = %v, want the compiler's complaint", err)
	}
	if p.Done() {
		t.Error("done although nothing was built")
	}
}

// Progress is told from complaints, which must not get lost.
func TestSaw(t *testing.T) {
	s := &Step{}
	for line, want := range map[string]bool{
		"k8s.io/kubernetes/pkg/kubelet":              true,
		"fmt":                                        true,
		"go: downloading k8s.io/api v0.37.2":         true,
		"# k8s.io/kubernetes/pkg/kubelet":            false,
		"cmd/pause/main.go:3:15: undefined: missing": false,
		"go: no such tool \"compile\"":               false,
	} {
		if got := s.Saw(line); got != want {
			t.Errorf("Saw(%q) = %t, want %t", line, got, want)
		}
	}
}
