// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever bytes two segments hold: no panic, no allocation by an unchecked
// length, and where Open accepts them, all readers agree on what they say and
// the next boot goes on from there.
func FuzzOpen(f *testing.F) {
	golden, err := filepath.Glob("testdata/v1/*.jsonl")
	if err != nil || len(golden) != 2 {
		f.Fatalf("golden segments: %q, %v", golden, err)
	}
	first, err := os.ReadFile(golden[0])
	if err != nil {
		f.Fatal(err)
	}
	second, err := os.ReadFile(golden[1])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first, second)
	f.Add(first[:len(first)-10], []byte{})
	f.Add([]byte{}, second)
	f.Add([]byte("\x00\n\n{}\n"), []byte(`{"magic":"agentsession-log","version":1}`+"\n\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{testSegment: a, strings.Replace(testSegment, "1", "2", 1): b} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		report, verifyErr := Verify(dir)
		l, r, err := Open(dir, testOptions())
		if (err == nil) != (verifyErr == nil) {
			t.Fatalf("Open() = %v, Verify() = %v", err, verifyErr)
		}
		if err != nil {
			return
		}
		defer l.Close()
		if r.Head != report.Head || r.Boot != 3 {
			t.Fatalf("Open() recovered %+v, Verify() %+v", r, report)
		}
		e, err := l.AppendSync(TypeBoot, Boot{})
		if err != nil || e.Seq != r.Head.Seq+1 || e.Prev != r.Head.Digest {
			t.Fatalf("AppendSync() = %+v, %v on %+v", e, err, r)
		}
		n := uint64(0)
		for e, err := range l.Events() {
			if n++; err != nil || e.Seq != n {
				t.Fatalf("event %d: %+v, %v", n, e, err)
			}
		}
		if n != e.Seq {
			t.Fatalf("%d events, want %d", n, e.Seq)
		}
	})
}
