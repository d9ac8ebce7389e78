// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a file system of its own with this much room.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Geteuid() != 0 {
			t.Skip("mounting a file system needs root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp writes a file of somebody else's until nothing more fits.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A disk that fills up in the middle of a line: the log refuses everything from
// there on, a boot on the full disk says what is wrong and harms nothing, and once
// there is room again the half line is cut and nothing acknowledged is missing.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, "256k")
	dir := filepath.Join(disk, "log")
	l, _ := mustOpen(t, dir)
	var want []string
	var first error
	for i := 0; first == nil; i++ {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000+i))
		var e Event
		if e, first = l.AppendSync(TypeUserMessage, UserMessage{Content: text}); first == nil {
			want = append(want, text)
		} else if e.Seq != 0 {
			t.Errorf("a failed append gave event %d", e.Seq)
		}
	}
	if !errors.Is(first, ErrUnwritable) || !errors.Is(first, unix.ENOSPC) || len(want) < 50 {
		t.Fatalf("after %d events: %v, want ErrUnwritable because of ENOSPC", len(want), first)
	}
	if _, err := l.Append(TypeStepEnd, nil); !errors.Is(err, first) {
		t.Errorf("Append() = %v, want the first error", err)
	}
	l.Close()
	torn := mustRead(t, segments(t, dir)[0])
	if torn[len(torn)-1] == '\n' {
		t.Error("the disk was full between two lines; the test proves less than it says")
	}
	fillUp(t, filepath.Join(disk, "ballast"))
	if _, _, err := Open(dir, testOptions()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Open() on the full disk = %v, want ENOSPC", err)
	}
	if report, err := Verify(dir); err != nil || len(report.Segments) != 1 || report.Cut == nil {
		t.Errorf("Verify() on the full disk = %+v, %v; want one segment with a torn tail", report, err)
	}
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", disk, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	next, r := mustOpen(t, dir)
	if r.Cut == nil || r.Head.Seq != uint64(len(want)) {
		t.Errorf("recovered %+v, want event %d and a torn tail", r, len(want))
	}
	mustAppend(t, next, "after")
	wantTexts(t, texts(t, dir, next), append(want, "after")...)
	next.Close()
}

// What is reserved can still be written when somebody else has filled the disk, is
// not a part of the file, and is given back at the end.
func TestReserve(t *testing.T) {
	const reserve = 64 << 10
	disk := smallDisk(t, "1m")
	dir := filepath.Join(disk, "log")
	free := func() uint64 {
		var s unix.Statfs_t
		if err := unix.Statfs(disk, &s); err != nil {
			t.Fatal(err)
		}
		return s.Bfree * uint64(s.Bsize)
	}
	o := testOptions()
	o.Reserve = reserve
	l, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := strings.Repeat("x", 1000)
	for range 100 { // more than the reserve: it moves on
		mustAppend(t, l, text)
		if l.Reserved() < reserve/2 {
			t.Fatalf("%d bytes reserved, want at least half of %d", l.Reserved(), reserve)
		}
	}
	path := segments(t, dir)[0]
	if info, err := os.Stat(path); err != nil || info.Size() != l.size {
		t.Errorf("the file has %d bytes, want the %d that were written: %v", info.Size(), l.size, err)
	}
	fillUp(t, filepath.Join(disk, "ballast"))
	n := 0
	for ; l.Reserved() > 2000; n++ {
		mustAppend(t, l, text)
	}
	if n < reserve/2/1300 {
		t.Errorf("only %d events fitted the reserve", n)
	}
	for err == nil {
		_, err = l.AppendSync(TypeUserMessage, UserMessage{Content: text})
	}
	if !errors.Is(err, unix.ENOSPC) || l.Reserved() > 4096 {
		t.Errorf("AppendSync() = %v with %d bytes reserved, want ENOSPC at the end of the reserve", err, l.Reserved())
	}
	l.Close()
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	before := free()
	if l, _, err = Open(dir, o); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "after")
	if used := before - free(); used < reserve {
		t.Errorf("%d bytes were taken, want the reserve of %d", used, reserve)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if used := before - free(); used > 16<<10 {
		t.Errorf("%d bytes are taken after Close, want what two lines need", used)
	}
}

// An agent that is killed leaves its reserve allocated; the boots after it give that back, so that
// no number of them fills the disk.
func TestAKilledAgentsReserveIsGivenBack(t *testing.T) {
	const reserve = 2 << 20
	disk := smallDisk(t, "16m")
	o := testOptions()
	o.Reserve = reserve
	for boot := range 20 {
		l, _, err := Open(filepath.Join(disk, "log"), o)
		if err != nil {
			t.Fatalf("boot %d: %v", boot+1, err)
		}
		mustAppend(t, l, "text")
		if got := l.Reserved(); got < reserve/2 {
			t.Fatalf("boot %d has %d bytes reserved, want %d", boot+1, got, reserve)
		}
		l.file.Close() // what a kill does
		l.lock.Close()
	}
	report, err := Verify(filepath.Join(disk, "log"))
	if err != nil || report.Events != 20 {
		t.Errorf("%d events are left: %v", report.Events, err)
	}
}
