// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testSegment = "00000001-pod-0123456789abcdef.jsonl"

// sampleSegment is a segment of five events, of which the first `synced` were
// committed one by one and the rest only written.
func sampleSegment(t *testing.T, synced int) []byte {
	t.Helper()
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	for i := range 5 {
		e, err := l.Append(TypeUserMessage, UserMessage{Content: fmt.Sprint(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		if i < synced {
			if err := l.Commit(e.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mustRead(t, segments(t, dir)[0])
}

// memoryDir is a directory where thousands of fsyncs cost nothing.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "eventlog-test-") //nolint:usetesting // in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// resetDir leaves one segment with these bytes in dir.
func resetDir(t *testing.T, dir string, content []byte) {
	t.Helper()
	for _, old := range segments(t, dir) {
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, testSegment), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Cut the log at every byte: all whole lines before the cut survive, the next
// boot can append and be read, the old file is untouched, and the only refusal
// is a cut below what a remaining line proves durable, which a cut cannot cause.
func TestTornTailAtEveryByte(t *testing.T) {
	whole := sampleSegment(t, 2)
	starts := lineStarts(whole)
	dir := memoryDir(t)
	for size := 0; size <= len(whole); size++ {
		resetDir(t, dir, whole[:size])
		l, r, err := Open(dir, testOptions())
		if err != nil {
			t.Fatalf("cut at byte %d: Open() = %v", size, err)
		}
		var want []string
		for i, start := range starts[1:] {
			if end := start + bytes.IndexByte(whole[start:], '\n') + 1; end <= size {
				want = append(want, fmt.Sprint(i+1))
			}
		}
		wantCut := size > starts[1] && !slices.Contains(starts, size) && size < len(whole)
		if (r.Cut != nil) != wantCut || r.Head.Seq != uint64(len(want)) {
			t.Errorf("cut at byte %d: recovered %+v, want seq %d and cut=%v", size, r, len(want), wantCut)
		}
		mustAppend(t, l, "next")
		l.Close()
		wantTexts(t, texts(t, dir, nil), append(want, "next")...)
		if !bytes.Equal(mustRead(t, filepath.Join(dir, testSegment)), whole[:size]) {
			t.Fatalf("cut at byte %d: the old segment was changed", size)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// Cut a log of three boots at every byte of its history, the later files not yet
// written: all whole lines before the cut survive, and life goes on.
func TestEveryPrefixOfAHistory(t *testing.T) {
	source := t.TempDir()
	for boot := range 3 {
		l, _ := mustOpen(t, source)
		for i := range 3 {
			if _, err := l.Append(TypeUserMessage, UserMessage{Content: fmt.Sprintf("%d.%d <é>", boot, i)}); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all := texts(t, source, nil)
	dir := memoryDir(t)
	whole := 0 // events in the files before the one that is cut
	for _, path := range segments(t, source) {
		content := mustRead(t, path)
		name := filepath.Join(dir, filepath.Base(path))
		for size := range len(content) + 1 {
			if err := os.WriteFile(name, content[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			before := len(segments(t, dir))
			l, r, err := Open(dir, testOptions())
			if err != nil {
				t.Fatalf("%s cut at byte %d: Open() = %v", path, size, err)
			}
			want := whole + max(bytes.Count(content[:size], []byte("\n"))-1, 0)
			if r.Head.Seq != uint64(want) || r.Boot != before+1 {
				t.Fatalf("%s cut at byte %d: recovered %+v, want event %d at boot %d", path, size, r, want, before+1)
			}
			mustAppend(t, l, "next")
			l.Close()
			wantTexts(t, texts(t, dir, nil), append(all[:want:want], "next")...)
			added := segments(t, dir)
			if err := os.Remove(added[len(added)-1]); err != nil || t.Failed() {
				t.Fatalf("%s cut at byte %d: %v", path, size, err)
			}
		}
		whole += 3
	}
}

// A cut inside what a successor's header names, or below what a header without
// events promised, is damage.
func TestCutBelowTheMark(t *testing.T) {
	for name, events := range map[string]int{"a successor with events": 1, "a successor that died at once": 0} {
		t.Run(name, func(t *testing.T) {
			dir := memoryDir(t)
			resetDir(t, dir, sampleSegment(t, 2))
			l, _ := mustOpen(t, dir)
			for range events {
				mustAppend(t, l, "next")
			}
			l.Close()
			path := filepath.Join(dir, testSegment)
			whole := mustRead(t, path)
			for size := range whole {
				if size == len(whole)-1 && events == 0 {
					continue // all but the last newline: the line below covers it
				}
				if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
					t.Fatal(err)
				}
				wantDamage(t, dir, fmt.Sprintf("cut at byte %d", size))
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			wantDamage(t, dir, "without the first segment")
		})
	}
}

func wantDamage(t *testing.T, dir, what string) {
	t.Helper()
	before := len(segments(t, dir))
	l, r, err := Open(dir, testOptions())
	if err == nil {
		l.Close()
		t.Fatalf("%s: Open() recovered %+v, want damage", what, r)
	}
	damage, ok := errors.AsType[*DamageError](err)
	if !ok || damage.File == "" || damage.Line == 0 || !strings.Contains(err.Error(), "start a new session") {
		t.Fatalf("%s: Open() = %v, want a DamageError that names file, line and what to do", what, err)
	}
	if len(segments(t, dir)) != before {
		t.Fatalf("%s: a segment was left behind", what)
	}
	if _, err := Verify(dir); err == nil {
		t.Fatalf("%s: Verify() is content", what)
	}
}

// Flip every byte in turn: an event that the log knows to be durable is never
// lost or changed in silence. The one exception is a last line that still parses:
// only the head that status keeps can tell.
func TestEveryFlippedByte(t *testing.T) {
	whole := sampleSegment(t, 3) // lines 5 and 6 say that event 3 is durable
	starts := lineStarts(whole)
	damaged, cut := 0, 0
	dir := memoryDir(t)
	for i := range whole {
		for _, flip := range []byte{0x01, 0x80, whole[i]} { // the last makes a zero byte
			bad := bytes.Clone(whole)
			bad[i] ^= flip
			resetDir(t, dir, bad)
			r, err := Verify(dir) // Open without a new segment
			if err != nil {
				if _, ok := errors.AsType[*DamageError](err); !ok && !errors.Is(err, errVersion) {
					t.Fatalf("byte %d ^ %#x: %v is not a DamageError", i, flip, err)
				}
				damaged++
				continue
			}
			if i < starts[4] && i > starts[1] {
				t.Fatalf("byte %d ^ %#x in a durable event: recovered %+v, want damage", i, flip, r)
			}
			if r.Cut != nil {
				cut++
			}
			got := texts(t, dir, nil)
			if len(got) < 3 || !slices.Equal(got[:3], []string{"1", "2", "3"}) {
				t.Fatalf("byte %d ^ %#x: the log holds %q, the durable events are lost", i, flip, got)
			}
		}
	}
	if damaged == 0 || cut == 0 {
		t.Errorf("%d flips were damage and %d were cut; the test proves nothing", damaged, cut)
	}
}

// Each kind of damage says what it is.
func TestDamageIsNamed(t *testing.T) {
	whole := sampleSegment(t, 5)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	join := func(lines ...[]byte) []byte { return bytes.Join(lines, nil) }
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"a line is missing":      {join(lines[0], lines[1], lines[3], lines[4], lines[5]), "line 3: event 3 stands where event 2 belongs"},
		"two lines are swapped":  {join(lines[0], lines[2], lines[1], lines[3], lines[4], lines[5]), "line 2: event 2 stands where event 1"},
		"a line is rewritten":    {bytes.Replace(whole, []byte(`"content":"2"`), []byte(`"content":"9"`), 1), "line 4: event 3 does not follow"},
		"a line is garbage":      {join(lines[0], lines[1], []byte("{]\n"), lines[3], lines[4], lines[5]), "line 3: not an event"},
		"another file":           {[]byte("hello\nworld\n"), "line 1: not an agent session log"},
		"another version":        {bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1), "unknown log format version 2"},
		"a foreign predecessor":  {bytes.Replace(whole, []byte(`"last":{"seq":0,"digest":"00`), []byte(`"last":{"seq":7,"digest":"11`), 1), "the segments before it end with event 0"},
		"the header has no boot": {bytes.Replace(whole, []byte(`"boot":1`), []byte(`"boot":0`), 1), "makes no sense"},
		"the name lies":          {bytes.Replace(whole, []byte(`"boot":1`), []byte(`"boot":3`), 1), "the name says boot 1, the header 3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeSegment(t, testSegment, tc.content)
			_, _, err := Open(dir, testOptions())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Open() = %v\nwant an error with %q", err, tc.want)
			}
		})
	}
}

// An endless line in the tail is cut without being held in memory.
func TestOversizedTail(t *testing.T) {
	whole := sampleSegment(t, 5)
	dir := writeSegment(t, testSegment, append(bytes.Clone(whole), bytes.Repeat([]byte("x"), MaxLine+2)...))
	l, r := mustOpen(t, dir)
	if r.Cut == nil || !strings.Contains(r.Cut.Why, "longer than 16 MiB") || r.Cut.Bytes != MaxLine+2 {
		t.Errorf("recovered %+v, want the long line cut", r)
	}
	wantTexts(t, texts(t, dir, l), "1", "2", "3", "4", "5")
}

// Boots that died before they wrote an event leave files that change nothing.
func TestBootsWithoutEvents(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		l, _ := mustOpen(t, dir)
		l.Close()
	}
	l, r := mustOpen(t, dir)
	if !r.Fresh || r.Boot != 4 {
		t.Errorf("recovered %+v, want fresh at boot 4", r)
	}
	mustAppend(t, l, "a")
	l.Close()
	for _, content := range []string{"", "{", "\x00\x00", "garbage\n"} { // boot 5 to 8, torn while created
		name := fmt.Sprintf("%08d-pod-0123456789abcdef.jsonl", len(segments(t, dir))+1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, r = mustOpen(t, dir)
	if r.Boot != 9 || r.Head.Seq != 1 {
		t.Errorf("recovered %+v, want seq 1 at boot 9", r)
	}
	mustAppend(t, l, "b")
	wantTexts(t, texts(t, dir, l), "a", "b")
}

// Two segments that both hold events of one boot are a fork; nobody may choose.
func TestForkedBoot(t *testing.T) {
	whole := sampleSegment(t, 5)
	dir := writeSegment(t, testSegment, whole)
	if err := os.WriteFile(filepath.Join(dir, strings.Replace(testSegment, "0123", "4567", 1)), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, dir, "a fork")
}

// A FIFO or a symlink in a segment's place is named, not opened.
func TestIrregularSegment(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(dir, testSegment)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(dir, testOptions()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Open() = %v, want it named", err)
	}
}
