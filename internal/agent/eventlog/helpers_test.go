// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func testOptions() Options {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	return Options{
		PodUID: "0b5f3c9e-pod",
		Now:    func() time.Time { at = at.Add(time.Second); return at },
	}
}

func mustOpen(t *testing.T, dir string) (*Log, Recovered) {
	t.Helper()
	l, r, err := Open(dir, testOptions())
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l, r
}

func mustAppend(t *testing.T, l *Log, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := l.AppendSync(TypeUserMessage, UserMessage{Content: text}); err != nil {
			t.Fatalf("AppendSync(%q) = %v", text, err)
		}
	}
}

// texts reads the log back, through Log.Events when l is given.
func texts(t *testing.T, dir string, l *Log) []string {
	t.Helper()
	events := Read(dir)
	if l != nil {
		events = l.Events()
	}
	var got []string
	for e, err := range events {
		if err != nil {
			t.Fatalf("reading the log: %v", err)
		}
		var m UserMessage
		if err := e.Decode(&m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Content)
	}
	return got
}

func wantTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

// segments are the log's files, ordered by boot.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// writeSegment makes a directory that holds one segment with these bytes.
func writeSegment(t testing.TB, name string, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lineStarts are the offsets at which the lines of b begin.
func lineStarts(b []byte) []int {
	starts := []int{0}
	for i, c := range b {
		if c == '\n' && i+1 < len(b) {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
