// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"errors"
	"io"
	"iter"
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

// Log is open for appending. Its methods may be called concurrently.
type Log struct{}

// Open verifies the log in dir, creates dir if it is missing, and starts a new
// segment for this boot. Older files are read, never changed: a torn tail is cut
// by naming the last line kept in the new segment's header. Damage at or below
// what an earlier boot knew to be durable is a *DamageError, a second process an
// error that wraps ErrLocked.
func Open(dir string, o Options) (*Log, Recovered, error) {
	return nil, Recovered{}, errors.ErrUnsupported
}

// Append writes one event. It is in the file when Append returns, but it may be
// acted on only after Commit. data must marshal to a JSON object; nil is {}.
// An event over MaxLine is refused and changes nothing.
func (l *Log) Append(t Type, data any) (Event, error) { return Event{}, errors.ErrUnsupported }

// Commit returns when every event up to seq is on disk. Calls that wait at the
// same time share one fsync. It takes no context: who stops waiting would not
// know whether the event counts.
func (l *Log) Commit(seq uint64) error { return errors.ErrUnsupported }

// Sync commits everything appended so far.
func (l *Log) Sync() error { return errors.ErrUnsupported }

// AppendSync appends one event and commits it.
func (l *Log) AppendSync(t Type, data any) (Event, error) { return Event{}, errors.ErrUnsupported }

// Head is the last event appended.
func (l *Log) Head() Head { return Head{} }

// Committed is the last event known to be on disk: the head to report to others.
func (l *Log) Committed() Head { return Head{} }

// Err is nil while the log can be written, and the first failure after that.
func (l *Log) Err() error { return errors.ErrUnsupported }

// Events yields every event of the log from the first one on, those of earlier
// boots and those appended before the call, one line in memory at a time. It
// ends at the first error.
func (l *Log) Events() iter.Seq2[Event, error] { return func(func(Event, error) bool) {} }

// Close commits what was appended and releases the directory.
func (l *Log) Close() error { return errors.ErrUnsupported }
