// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Two boots make one chain over two files, and the second reads the first.
func TestTwoBootsAreOneChain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l, r := mustOpen(t, dir)
	if !r.Fresh || r.Boot != 1 || r.Head != (Head{Digest: Genesis}) {
		t.Errorf("first Open() recovered %+v, want a fresh log at boot 1", r)
	}
	mustAppend(t, l, "a", "b")
	head := l.Head()
	if l.Committed() != head {
		t.Errorf("Committed() = %v after AppendSync, want the head %v", l.Committed(), head)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	first := mustRead(t, segments(t, dir)[0])
	if got := digestOf(lastLine(first)); got != head.Digest {
		t.Errorf("the head's digest is %s, the last line's %s", head.Digest, got)
	}

	l, r = mustOpen(t, dir)
	if r.Fresh || r.Boot != 2 || r.Head != head || r.Cut != nil {
		t.Errorf("second Open() recovered %+v, want boot 2 on head %v", r, head)
	}
	mustAppend(t, l, "c")
	wantTexts(t, texts(t, dir, l), "a", "b", "c")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, segments(t, dir)[0]); !bytes.Equal(got, first) {
		t.Error("the second boot changed the first segment")
	}
	report, err := Verify(dir)
	if err != nil {
		t.Fatalf("Verify() = %v", err)
	}
	if len(report.Segments) != 2 || report.Events != 3 || report.Segments[1].First != 3 {
		t.Errorf("Verify() = %+v, want 3 events in 2 segments", report)
	}
	var exported bytes.Buffer
	if err := Export(&exported, dir); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(exported.Bytes(), []byte("\n")); n != 3 || bytes.Contains(exported.Bytes(), []byte(Magic)) {
		t.Errorf("Export() wrote %d lines:\n%s\nwant the 3 events and no header", n, &exported)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(exported.Bytes()), []byte("\n")) {
		if i > 0 && !bytes.Contains(line, []byte(`"prev":"`+digestOf(bytes.Split(exported.Bytes(), []byte("\n"))[i-1])+`"`)) {
			t.Errorf("exported line %d does not chain: %s", i+1, line)
		}
	}
}

// The fields stand in their order, payload strings are not HTML-escaped, and
// durable names what was synced before the line.
func TestLineFormat(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	mustAppend(t, l, "a<b>&c")
	if _, err := l.Append("x/unheard-of", map[string]int{"n": 1}); err != nil {
		t.Fatal(err)
	}
	want := `{"seq":2,"time":"2026-01-02T03:04:08.000000678Z","type":"x/unheard-of","data":{"n":1},"durable":1,"prev":"`
	b := mustRead(t, segments(t, dir)[0])
	if got := string(lastLine(b)); !strings.HasPrefix(got, want) {
		t.Errorf("line = %s\nwant it to begin with %s", got, want)
	}
	if !bytes.Contains(b, []byte(`"content":"a<b>&c"`)) {
		t.Errorf("the payload was escaped:\n%s", b)
	}
	if !json.Valid(lastLine(b)) {
		t.Error("the line is not JSON")
	}
}

// Events that cannot be lines are refused and leave the log as it was.
func TestRefusedEventsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	mustAppend(t, l, "a")
	for name, tc := range map[string]struct {
		typ  Type
		data any
		want string
	}{
		"too large":      {TypeUserMessage, UserMessage{Content: strings.Repeat("x", MaxLine)}, "at most"},
		"not an object":  {TypeUserMessage, []int{1}, "not a JSON object"},
		"not marshalled": {TypeUserMessage, make(chan int), "unsupported type"},
		"not a type":     {"user message", nil, "not an event type"},
		"no type":        {"", nil, "not an event type"},
	} {
		if _, err := l.Append(tc.typ, tc.data); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Append() = %v, want an error with %q", name, err, tc.want)
		}
	}
	mustAppend(t, l, "b")
	wantTexts(t, texts(t, dir, nil), "a", "b")
}

// An event just within the bound is written and read back.
func TestLargestLine(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	big := strings.Repeat("x", MaxLine-300)
	mustAppend(t, l, big, "after")
	wantTexts(t, texts(t, dir, l), big, "after")
}

// Lines that a stale writer adds behind its successor's back are outside the chain.
func TestStaleWriterHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	mustAppend(t, l, "a", "b")
	l.lock.Close() // as if its node had lost the lock; it goes on writing to the first segment
	stale := l

	next, r := mustOpen(t, dir)
	mustAppend(t, next, "c")
	for range 3 {
		if _, err := stale.AppendSync(TypeUserMessage, UserMessage{Content: "stale"}); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, next, "d")
	wantTexts(t, texts(t, dir, next), "a", "b", "c", "d")
	next.Close()

	third, r3 := mustOpen(t, dir)
	wantTexts(t, texts(t, dir, third), "a", "b", "c", "d")
	if r.Head.Seq != 2 || r3.Head.Seq != 4 || r3.Cut != nil {
		t.Errorf("recovered %+v then %+v, want heads 2 and 4 and nothing cut", r, r3)
	}
	report, err := Verify(dir)
	if err != nil || report.Segments[0].Ignored == 0 {
		t.Errorf("Verify() = %+v, %v; want the stale lines counted as ignored", report, err)
	}
}

// A second writer on the same directory is told so, and the first goes on.
func TestSecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	_, _, err := Open(dir, testOptions())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("second Open() = %v, want ErrLocked", err)
	}
	mustAppend(t, l, "a")
	if n := len(segments(t, dir)); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
}

// Where locks do not reach, a segment of the same or a later boot that appears
// meanwhile makes the newcomer withdraw without a trace.
func TestRivalSegmentIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	mustAppend(t, l, "a")
	l.Close()
	rival := filepath.Join(dir, "00000002-other-0123456789abcdef.jsonl")
	o := testOptions()
	now := o.Now
	o.Now = func() time.Time { // called between reading the directory and creating the segment
		if err := os.WriteFile(rival, nil, 0o600); err != nil {
			t.Error(err)
		}
		return now()
	}
	if _, _, err := Open(dir, o); !errors.Is(err, ErrLocked) {
		t.Errorf("Open() = %v, want ErrLocked", err)
	}
	if n := len(segments(t, dir)); n != 2 {
		t.Errorf("%d segments, want the first and the rival's only", n)
	}
}

// Appends and commits from many goroutines keep one gapless chain, and the mirror
// gets each committed line once, in order.
func TestConcurrentCommits(t *testing.T) {
	dir := t.TempDir()
	var mirrored bytes.Buffer
	o := testOptions()
	o.Mirror = func(line []byte) { mirrored.Write(append(slices.Clip(line), '\n')) }
	l, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				e, err := l.AppendSync(TypeStepEnd, StepEnd{})
				if err != nil || l.Committed().Seq < e.Seq {
					t.Errorf("AppendSync() = %d, %v; committed %d", e.Seq, err, l.Committed().Seq)
				}
			}
		})
	}
	wg.Wait()
	if _, err := l.Append(TypeStepEnd, nil); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(mirrored.Bytes(), []byte("\n")); n != 160 {
		t.Errorf("the mirror has %d lines before the last commit, want 160", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var exported bytes.Buffer
	if err := Export(&exported, dir); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(exported.Bytes(), mirrored.Bytes()) {
		t.Error("the mirrored lines differ from the log's")
	}
	if _, err := l.Append(TypeStepEnd, nil); err == nil {
		t.Error("Append() after Close() succeeded")
	}
}

// Who waits for an fsync that is under way shares the next one with all others that do.
func TestWaitersShareOneSync(t *testing.T) {
	const waiters = 8
	started, release := make(chan struct{}), make(chan struct{})
	syncs := 0
	h := &hooked{}
	h.inSync = func() {
		if syncs++; syncs == 1 {
			close(started)
			<-release
		}
	}
	o := testOptions()
	o.wrap = func(s sink) sink { h.sink = s; return h }
	l, _, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all, appended sync.WaitGroup
	all.Go(func() {
		if _, err := l.AppendSync(TypeStepEnd, nil); err != nil {
			t.Error(err)
		}
	})
	<-started
	appended.Add(waiters)
	for range waiters {
		all.Go(func() {
			e, err := l.Append(TypeStepEnd, nil)
			appended.Done()
			if err == nil {
				err = l.Commit(e.Seq)
			}
			if err != nil || l.Committed().Seq < e.Seq {
				t.Errorf("event %d: %v, committed %d", e.Seq, err, l.Committed().Seq)
			}
		})
	}
	appended.Wait() // while the first sync runs
	close(release)
	all.Wait()
	if syncs != 2 {
		t.Errorf("%d fsyncs for %d events, want one for the first and one for the %d that waited", syncs, waiters+1, waiters)
	}
}

// Each sees, during Open, what Events yields after it, and its error ends Open.
func TestEach(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir)
	mustAppend(t, l, "a", "b", "c")
	want := texts(t, dir, l)
	l.Close()
	o := testOptions()
	var got []string
	var events []Event
	o.Each = func(e Event) error { events = append(events, e); return nil }
	l, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, e := range events { // after the walk: nothing may be overwritten by then
		var m UserMessage
		if err := e.Decode(&m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Content)
	}
	wantTexts(t, got, want...)
	enough := errors.New("enough")
	o.Each = func(Event) error { return enough }
	if _, _, err := Open(dir, o); !errors.Is(err, enough) {
		t.Errorf("Open() = %v, want the reader's error", err)
	}
}

// Committing what was never appended is a mistake of the caller, not a wait for ever.
func TestCommitBeyondTheHead(t *testing.T) {
	l, _ := mustOpen(t, t.TempDir())
	if err := l.Commit(1); err == nil || l.Err() != nil {
		t.Errorf("Commit(1) = %v, Err() = %v; want an error that poisons nothing", err, l.Err())
	}
}
