// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// fault is what happens to the one operation that fails.
type fault string

const (
	refuse   fault = "it fails and does nothing"
	half     fault = "it fails half way"
	powerOff fault = "the power goes before it"
)

// model is the real disk with the memory of what a power loss would take: bytes
// that were not synced, files whose directory was not. An fsync that fails gives
// up what it should have written, shows it to readers all the same, and the next
// one succeeds without it.
type model struct {
	real   osDisk
	ops    int
	failAt int // the operation that fails, from 1
	fault  fault
	off    bool
	files  map[string]*modelFile
	dir    string // the log's
	linked bool   // the directory's own entry is on disk
	// settled, when set, runs once after a file was settled.
	settled func()
}

type modelFile struct {
	synced  int64 // bytes that a power loss leaves
	size    int64
	linked  bool
	givenUp bool
}

var errFault = fmt.Errorf("injected: %w", syscall.EIO)

// next counts an operation and says whether it is the one.
func (m *model) next() (fault, error) {
	if m.off {
		return powerOff, errFault
	}
	if m.ops++; m.ops != m.failAt {
		return "", nil
	}
	m.off = m.fault == powerOff
	return m.fault, errFault
}

func (m *model) makeDir(path string) error {
	if _, err := m.next(); err != nil {
		return err
	}
	return m.real.makeDir(path)
}

func (m *model) create(path string) (sink, error) {
	if _, err := m.next(); err != nil {
		return nil, err
	}
	s, err := m.real.create(path)
	m.files[path] = &modelFile{}
	return &modelSink{sink: s, m: m, f: m.files[path]}, err
}

func (m *model) remove(path string) error {
	if m.off {
		return errFault
	}
	delete(m.files, path)
	return m.real.remove(path)
}

func (m *model) sync(path string) error {
	f := m.files[path]
	if f != nil {
		return m.syncFile(f)
	}
	if _, err := m.next(); err != nil {
		return err
	}
	if path != m.dir {
		m.linked = true
		return nil
	}
	for _, f := range m.files {
		f.linked = true
	}
	return nil
}

func (m *model) syncFile(f *modelFile) error {
	if what, err := m.next(); err != nil {
		f.givenUp = f.givenUp || what != powerOff
		return err
	}
	if !f.givenUp {
		f.synced = f.size
	}
	return nil
}

func (m *model) giveBack(string) error { return nil }

func (m *model) settle(path string) error {
	f := m.files[path]
	if err := m.syncFile(f); err != nil {
		return err
	}
	if f.givenUp {
		f.size, f.givenUp = f.synced, false
		return os.Truncate(path, f.size)
	}
	if m.settled != nil {
		m.settled()
		m.settled = nil
	}
	return nil
}

// losePower leaves what is on disk: all that was synced, of the rest of each file a
// part of keep hundredths, and of files that no directory names, all or nothing.
func (m *model) losePower(keep int64) error {
	m.off = false
	if !m.linked {
		m.files = map[string]*modelFile{}
		return os.RemoveAll(m.dir)
	}
	for _, path := range slices.Collect(maps.Keys(m.files)) {
		f := m.files[path]
		if !f.linked && keep < 100 {
			delete(m.files, path)
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if !f.givenUp {
			f.synced += (f.size - f.synced) * keep / 100
		}
		f.size, f.givenUp, f.linked = f.synced, false, true
		if err := os.Truncate(path, f.size); err != nil {
			return err
		}
	}
	return nil
}

type modelSink struct {
	sink
	m *model
	f *modelFile
}

func (s *modelSink) Write(b []byte) (int, error) {
	what, err := s.m.next()
	switch {
	case what == half:
		b = b[:len(b)/2]
	case err != nil:
		return 0, err
	}
	n, writeErr := s.sink.Write(b)
	s.f.size += int64(n)
	return n, errors.Join(err, writeErr)
}

func (s *modelSink) Sync() error { return s.m.syncFile(s.f) }

// life is a log's life over several boots, and what it was promised to keep.
type life struct {
	t        *testing.T
	m        *model
	appended map[string]bool
	acked    []string
}

// boot opens the log, appends and commits, and ends in one of two ways. Whatever
// fails ends it, as it does the agent.
func (l *life) boot(n int, closes bool) {
	o := testOptions()
	o.disk = l.m
	log, _, err := Open(l.m.dir, o)
	if err != nil {
		if _, damaged := errors.AsType[*DamageError](err); damaged {
			l.t.Fatalf("boot %d: %v", n, err)
		}
		return
	}
	defer func() { // as the kernel does, whatever ends the process
		log.lock.Close()
		log.file.Close()
	}()
	var open []string
	for i, commit := range []bool{false, true, true, false, false, true, false} {
		text := fmt.Sprintf("%d.%d", n, i)
		l.appended[text] = true
		e, err := log.Append(TypeUserMessage, UserMessage{Content: text})
		if err != nil {
			return
		}
		open = append(open, text)
		if commit {
			if log.Commit(e.Seq) != nil {
				return
			}
			l.acked, open = append(l.acked, open...), nil
		}
	}
	if closes && log.Close() == nil {
		l.acked = append(l.acked, open...)
	}
}

func (l *life) check(what string) {
	l.t.Helper()
	report, err := Verify(l.m.dir)
	if err != nil && (len(l.acked) > 0 || !errors.Is(err, os.ErrNotExist)) {
		l.t.Fatalf("%s: Verify() = %v", what, err)
	}
	at, seen := 0, map[string]bool{}
	if report.Events > 0 {
		for _, text := range texts(l.t, l.m.dir, nil) {
			if !l.appended[text] || seen[text] {
				l.t.Fatalf("%s: the log holds %q, which was never appended, or twice", what, text)
			}
			seen[text] = true
			if at < len(l.acked) && l.acked[at] == text {
				at++
			}
		}
	}
	if at < len(l.acked) {
		l.t.Fatalf("%s: %q was acknowledged and is not in its place", what, l.acked[at])
	}
}

// Fail each operation on the disk in turn, in each way: what was acknowledged is
// there in order, now, after a restart on the same page cache, and after the
// power went; and the log is never taken for damaged.
func TestEveryOperationFails(t *testing.T) {
	run := func(what string, failAt int, f fault, keep int64) int {
		dir := filepath.Join(memoryDir(t), "log")
		l := &life{t: t, appended: map[string]bool{}, m: &model{failAt: failAt, fault: f, dir: dir, files: map[string]*modelFile{}}}
		for n := range 5 {
			l.boot(n, n%2 == 1)
			if l.m.off {
				if err := l.m.losePower(keep); err != nil {
					t.Fatal(err)
				}
			}
			l.check(fmt.Sprintf("%s, after boot %d", what, n))
		}
		if err := l.m.losePower(keep); err != nil {
			t.Fatal(err)
		}
		l.check(what + ", after the power went")
		if len(l.acked) < 20 {
			t.Fatalf("%s: only %d events acknowledged", what, len(l.acked))
		}
		return l.m.ops
	}
	ops := run("nothing fails", 0, refuse, 0)
	for failAt := 1; failAt <= ops; failAt++ {
		for _, f := range []fault{refuse, half, powerOff} {
			for _, keep := range []int64{0, 37, 100} {
				if keep == 37 && f != powerOff {
					continue // the same log as with 0 or 100, but for its last lines
				}
				run(fmt.Sprintf("operation %d of %d: %s, %d%% of the unsynced is kept", failAt, ops, f, keep), failAt, f, keep)
			}
		}
	}
	t.Logf("%d operations", ops)
}

// A log that is open is on disk, before anything is written to it: its directory, its name and its header.
func TestAnOpenLogIsOnDisk(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "log")
	m := &model{dir: dir, files: map[string]*modelFile{}}
	o := testOptions()
	o.disk = m
	log, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	log.lock.Close()
	if err := m.losePower(0); err != nil {
		t.Fatal(err)
	}
	if all := segments(t, dir); len(all) != 1 || !bytes.HasSuffix(mustRead(t, all[0]), []byte("}\n")) {
		t.Errorf("after the power went there are %v", all)
	}
}

// What a stale writer adds while its successor starts is on disk before the
// successor's header says that it is.
func TestLinesOfAStaleWriterAreSyncedBeforeTheyArePromised(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "log")
	m := &model{dir: dir, files: map[string]*modelFile{}}
	o := testOptions()
	o.disk = m
	stale, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, stale, "a")
	stale.lock.Close()
	m.settled = func() {
		if _, err := stale.Append(TypeUserMessage, UserMessage{Content: "stale"}); err != nil {
			t.Error(err)
		}
	}
	next, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, next, "b")
	next.lock.Close()
	if err := m.losePower(0); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, texts(t, dir, nil), "a", "stale", "b")
}
