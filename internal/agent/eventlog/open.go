// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"cmp"
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

	// Each is given every event that is kept, in order, while Open verifies the log:
	// a reader that folds them need not read it again. An error ends Open.
	Each func(Event) error
	// Secrets are texts that must not reach the log, as they are now. Each of at least
	// 8 bytes is replaced wherever a payload holds it in a string. Append returns the
	// event as it was written.
	Secrets func() []string
	// Reserve is how many bytes of the volume are kept allocated for events to come, so
	// that somebody else who fills it does not stop the log at once; 0 is none. It
	// takes effect where the file system can allocate ahead. What a killed agent had
	// reserved is given back by the next Open.
	Reserve int64

	// wrap lets tests stand between the log and its file, disk between it and the disk.
	wrap func(sink) sink
	disk disk
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
	if o.disk == nil {
		o.disk = osDisk{}
	}
	if err := makeDir(o.disk, dir); err != nil {
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
	if err := c.settle(o.disk); err != nil {
		return nil, Recovered{}, err
	}
	if err := c.walkEach(o.Each); err != nil {
		return nil, Recovered{}, err
	}
	if err := c.keep(o.disk); err != nil {
		return nil, Recovered{}, err
	}
	file, own, err := createSegment(o.disk, dir, header{
		Magic: Magic, Version: Version, Boot: c.boots + 1, PodUID: o.PodUID, Time: o.Now().UTC(), Last: c.head,
	}, o.Rand)
	if err != nil {
		return nil, Recovered{}, err
	}
	// The content of older files stays as it is. Where giving back fails, there is less room.
	for _, p := range c.parts {
		_ = o.disk.giveBack(p.path)
	}
	l := &Log{
		opts: o, file: file, boot: own.boot,
		parts: append(c.parts, part{segment: own}),
		head:  c.head, committed: c.head, size: own.headerLen,
	}
	if o.wrap != nil {
		l.file = o.wrap(file)
	}
	l.topUp()
	return l, Recovered{Fresh: c.head.Seq == 0, Boot: own.boot, Head: c.head, Cut: c.cut}, nil
}

// walkEach is walk with a visitor that may fail and may keep what it is given.
func (c *chain) walkEach(visit func(Event) error) error {
	if visit == nil {
		return c.walk(nil)
	}
	var visitErr error
	err := c.walk(func(e Event, _ []byte) bool {
		e.Data = bytes.Clone(e.Data)
		visitErr = visit(e)
		return visitErr == nil
	})
	return cmp.Or(err, visitErr)
}

// settle readies the last part for being believed: it is the one that nothing on
// disk vouches for, and an earlier boot may have ended because its fsync failed.
func (c *chain) settle(d disk) error {
	if n := len(c.parts); n > 0 {
		if err := d.settle(c.parts[n-1].path); err != nil {
			return fmt.Errorf("%w: settling the last segment: %w", ErrUnwritable, err)
		}
	}
	return nil
}

// keep makes the recovered tail durable before a header promises that it is: the
// last boot may have written lines that it did not live to sync.
func (c *chain) keep(d disk) error {
	n := len(c.parts)
	if n == 0 {
		return nil
	}
	last := &c.parts[n-1]
	if err := d.sync(last.path); err != nil {
		return fmt.Errorf("%w: syncing the recovered segment: %w", ErrUnwritable, err)
	}
	head := c.head
	last.until = &head
	return nil
}

// makeDir syncs the parent also where the directory is there already: the boot that
// made it may have failed before its own sync.
func makeDir(d disk, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := d.makeDir(dir); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return d.sync(filepath.Dir(dir))
}
