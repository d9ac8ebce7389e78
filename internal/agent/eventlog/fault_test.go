// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"errors"
	"io"
	"syscall"
	"testing"
)

// faulty stands before a real file and fails on cue.
type faulty struct {
	sink
	writeErr error
	short    int // bytes of the next write that reach the file; 0 is all
	noError  bool
	syncErr  error
	syncs    int
}

func (f *faulty) Write(b []byte) (int, error) {
	if f.short > 0 {
		n, err := f.sink.Write(b[:f.short])
		if f.noError || err != nil {
			return n, err
		}
		return n, f.writeErr
	}
	if f.writeErr != nil {
		return 0, f.writeErr
	}
	return f.sink.Write(b)
}

func (f *faulty) Sync() error {
	f.syncs++
	if f.syncErr != nil {
		return f.syncErr
	}
	return f.sink.Sync()
}

// After the first failure every call returns it, no fsync is tried again, nothing
// uncommitted was mirrored, and the next boot has every acknowledged event.
func TestFailurePoisonsTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		fault faulty
		cause error
		keeps []string // besides the acknowledged ones
	}{
		"the disk is full":                   {faulty{writeErr: syscall.ENOSPC}, syscall.ENOSPC, nil},
		"half a line fits":                   {faulty{writeErr: syscall.ENOSPC, short: 20}, syscall.ENOSPC, nil},
		"half a line is written in silence":  {faulty{short: 20, noError: true}, io.ErrShortWrite, nil},
		"all but the newline fits":           {faulty{writeErr: syscall.EIO, short: 1 << 30}, syscall.EIO, nil},
		"the fsync fails, the line is there": {faulty{syncErr: syscall.EIO}, syscall.EIO, []string{"lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var f *faulty
			mirrored := 0
			o := testOptions()
			o.wrap = func(s sink) sink { f = &faulty{sink: s}; return f }
			o.Mirror = func([]byte) { mirrored++ }
			l, _, err := Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, "a", "b")
			if tc.fault.short == 1<<30 { // the length of the coming line
				tc.fault.short = len(lastLine(mustRead(t, segments(t, dir)[0]))) + len("lost") - len("b")
			}
			inner := f.sink
			*f = tc.fault
			f.sink = inner

			_, first := l.AppendSync(TypeUserMessage, UserMessage{Content: "lost"})
			if !errors.Is(first, ErrUnwritable) || !errors.Is(first, tc.cause) {
				t.Fatalf("AppendSync() = %v, want ErrUnwritable because of %v", first, tc.cause)
			}
			syncs := f.syncs
			f.writeErr, f.syncErr, f.short = nil, nil, 0 // the disk is well again
			if _, err := l.Append(TypeUserMessage, UserMessage{Content: "more"}); !errors.Is(err, first) {
				t.Errorf("Append() = %v, want the first error", err)
			}
			if err := l.Commit(1); !errors.Is(err, first) {
				t.Errorf("Commit() = %v, want the first error", err)
			}
			if err := l.Close(); !errors.Is(err, ErrUnwritable) {
				t.Errorf("Close() = %v, want ErrUnwritable", err)
			}
			if f.syncs != syncs {
				t.Errorf("%d fsyncs after the failure, want none", f.syncs-syncs)
			}
			if mirrored != 2 || l.Committed().Seq != 2 {
				t.Errorf("%d lines mirrored, %d committed, want 2 and 2", mirrored, l.Committed().Seq)
			}
			next, _ := mustOpen(t, dir)
			wantTexts(t, texts(t, dir, next), append([]string{"a", "b"}, tc.keeps...)...)
		})
	}
}

// hooked runs a function inside each fsync.
type hooked struct {
	sink
	inSync func()
}

func (h *hooked) Sync() error {
	h.inSync()
	return h.sink.Sync()
}

// An event that is appended while an fsync runs is not covered by it.
func TestAppendDuringSyncIsNotCommitted(t *testing.T) {
	h := &hooked{inSync: func() {}}
	o := testOptions()
	o.wrap = func(s sink) sink { h.sink = s; return h }
	mirrored := 0
	o.Mirror = func([]byte) { mirrored++ }
	l, _, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	syncs := 0
	h.inSync = func() {
		if syncs++; syncs > 1 {
			return
		}
		if e, err := l.Append(TypeStepEnd, nil); err != nil || e.Durable != 0 {
			t.Errorf("Append() = %+v, %v; want durable 0, for event 1 is not synced yet", e, err)
		}
	}
	mustAppend(t, l, "a")
	if l.Committed().Seq != 1 || l.Head().Seq != 2 || mirrored != 1 {
		t.Errorf("committed %d of %d, mirrored %d; want 1 of 2, and 1", l.Committed().Seq, l.Head().Seq, mirrored)
	}
	if err := l.Commit(2); err != nil || syncs != 2 || mirrored != 2 {
		t.Errorf("Commit(2) = %v after %d syncs, mirrored %d; want a second sync", err, syncs, mirrored)
	}
	if err := l.Commit(2); err != nil || syncs != 2 {
		t.Errorf("Commit(2) again = %v after %d syncs, want no third", err, syncs)
	}
}
