// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sink is what a log does to its own file.
type sink interface {
	io.WriteCloser
	Sync() error
}

// reserver is a sink that can keep space for itself.
type reserver interface {
	// reserve allocates n bytes from an offset on, behind the end of the file too,
	// without making it longer.
	reserve(from, n int64) error
	// release gives back what is allocated behind size, the end of the file.
	release(size int64) error
}

// disk is what a log changes. Reading needs no stand-in: tests damage real files.
type disk interface {
	makeDir(path string) error
	create(path string) (sink, error)
	remove(path string) error
	// sync makes a file's content, or a directory's entries, durable.
	sync(path string) error
	// settle makes a file's content durable and sees to it that reading it from here on
	// gives what the disk holds. After an fsync that failed, the kernel may go on to
	// show lines that it has given up writing.
	settle(path string) error
	// giveBack frees what a file has allocated behind its end.
	giveBack(path string) error
}

type osDisk struct{}

func (osDisk) makeDir(path string) error { return os.MkdirAll(path, 0o700) }

func (osDisk) create(path string) (sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) remove(path string) error { return os.Remove(path) }

func (osDisk) sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (osDisk) settle(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping cached pages: %w", err)
	}
	return nil
}

func (osDisk) giveBack(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	const slack = 256 << 10 // file systems round up, each in its own way
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Blocks*512 <= info.Size()+slack {
		return nil
	}
	return os.Truncate(path, info.Size())
}

type osFile struct{ *os.File }

func (f osFile) reserve(from, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
}

func (f osFile) release(size int64) error { return f.Truncate(size) }

// topUp keeps Options.Reserve allocated ahead of the end of the log, from half of
// it on. It may fail: then what is left is used up first.
func (l *Log) topUp() {
	r, ok := l.file.(reserver)
	if !ok || l.opts.Reserve <= 0 {
		return
	}
	l.mu.Lock()
	size, left := l.size, l.reservedTo-l.size
	l.mu.Unlock()
	if left > l.opts.Reserve/2 || r.reserve(size, l.opts.Reserve) != nil {
		return
	}
	l.mu.Lock()
	l.reservedTo = size + l.opts.Reserve
	l.mu.Unlock()
}

// Reserved is how many bytes may still be appended on a full disk; 0 when the
// option is off or the file system cannot keep space.
func (l *Log) Reserved() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.reservedTo-l.size, 0)
}

// release gives back what was reserved and not used.
func (l *Log) release() error {
	r, ok := l.file.(reserver)
	l.mu.Lock()
	size, reserved := l.size, l.reservedTo
	l.mu.Unlock()
	if !ok || reserved <= size {
		return nil
	}
	return r.release(size)
}
