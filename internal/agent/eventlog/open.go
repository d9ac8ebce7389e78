// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Options are what a log needs from outside. The zero value works.
type Options struct {
	// PodUID stands in the segment's name and header.
	PodUID string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Rand makes the segment's name unlike any other; nil is crypto/rand.
	Rand io.Reader
	// Mirror is given each committed line in order, without its newline, right
	// after it became durable. The slice must not be changed. It must return at
	// once: use Mirror.Line.
	Mirror func(line []byte)

	// wrap lets tests stand between the log and its file.
	wrap func(sink) sink
}

// sink is what a log does to its own file.
type sink interface {
	io.WriteCloser
	Sync() error
}

// Cut is what recovery dropped: lines that were written but never promised.
type Cut struct {
	File  string `json:"file"`  // name of the segment
	Line  int    `json:"line"`  // first line that was dropped
	Bytes int64  `json:"bytes"` // how much was dropped
	Why   string `json:"why"`
}

// Recovered is what Open found.
type Recovered struct {
	// Fresh is true when the directory held no event. If status knows a head, the
	// log was lost: that is the caller's to report.
	Fresh bool
	// Boot is the number of this boot, from 1.
	Boot int
	// Head is the last event that was kept.
	Head Head
	// Cut is nil when every byte was kept.
	Cut *Cut
}

// Open verifies the log in dir, creates dir if it is missing, and starts a new
// segment for this boot. Older files are read, never changed: a torn tail is cut
// by naming the last line kept in the new segment's header. Damage at or below
// what an earlier boot knew to be durable is a *DamageError, a second process an
// error that wraps ErrLocked.
func Open(dir string, o Options) (*Log, Recovered, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if err := makeDir(dir); err != nil {
		return nil, Recovered{}, fmt.Errorf("creating the log directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, Recovered{}, err
	}
	l, recovered, err := openLocked(dir, o)
	if err != nil {
		lock.Close()
		return nil, Recovered{}, err
	}
	l.lock = lock
	return l, recovered, nil
}

func openLocked(dir string, o Options) (*Log, Recovered, error) {
	c, err := planChain(dir)
	if err != nil {
		return nil, Recovered{}, err
	}
	if err := c.walk(nil); err != nil {
		return nil, Recovered{}, err
	}
	if err := c.keep(); err != nil {
		return nil, Recovered{}, err
	}
	file, own, err := createSegment(dir, header{
		Magic: Magic, Version: Version, Boot: c.boots + 1, PodUID: o.PodUID, Time: o.Now().UTC(), Last: c.head,
	}, o.Rand)
	if err != nil {
		return nil, Recovered{}, err
	}
	l := &Log{
		opts: o, file: file, boot: own.boot,
		parts: append(c.parts, part{segment: own}),
		head:  c.head, committed: c.head,
	}
	if o.wrap != nil {
		l.file = o.wrap(file)
	}
	return l, Recovered{Fresh: c.head.Seq == 0, Boot: own.boot, Head: c.head, Cut: c.cut}, nil
}

// keep makes the recovered tail durable before a header promises that it is: the
// last boot may have written lines that it did not live to sync.
func (c *chain) keep() error {
	n := len(c.parts)
	if n == 0 {
		return nil
	}
	last := &c.parts[n-1]
	if err := syncPath(last.path); err != nil {
		return fmt.Errorf("%w: syncing the recovered segment: %w", ErrUnwritable, err)
	}
	head := c.head
	last.until = &head
	return nil
}

func makeDir(dir string) error {
	_, err := os.Stat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}
