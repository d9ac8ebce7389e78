// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
)

// Log is open for appending. Its methods may be called concurrently.
type Log struct {
	opts Options
	boot int
	file sink
	lock *os.File

	// syncing is held around an fsync. Who waits for it finds its events durable
	// by another's fsync more often than not. It is taken before mu.
	syncing sync.Mutex

	mu        sync.Mutex
	parts     []part // the last one is this boot's
	head      Head
	committed Head
	pending   [][]byte // lines for the mirror, appended and not committed
	err       error
	data      bytes.Buffer // scratch
	line      []byte       // scratch
	size      int64        // of this boot's file
	// reservedTo is the offset up to which the file has space whatever happens.
	reservedTo int64
}

var errClosed = errors.New("the event log is closed")

// Append writes one event. It is in the file when Append returns, but it may be
// acted on only after Commit. data must marshal to a JSON object; nil is {}.
// An event over MaxLine is refused and changes nothing.
func (l *Log) Append(t Type, data any) (Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return Event{}, l.err
	}
	if !t.valid() {
		return Event{}, fmt.Errorf("appending an event: %q is not an event type", string(t))
	}
	if err := encodeData(&l.data, data); err != nil {
		return Event{}, fmt.Errorf("appending %s: %w", t, err)
	}
	payload := l.data.Bytes()
	if l.opts.Secrets != nil {
		payload = redact(payload, l.opts.Secrets())
	}
	e := Event{
		Seq: l.head.Seq + 1, Time: l.opts.Now().UTC(), Type: t,
		Data: bytes.Clone(payload), Durable: l.committed.Seq, Prev: l.head.Digest,
	}
	l.line = appendLine(l.line[:0], e)
	if len(l.line) > MaxLine {
		return Event{}, fmt.Errorf("appending %s: the event has %d bytes, at most %d fit a line of the log", t, len(l.line), MaxLine)
	}
	if err := l.writeLocked(); err != nil {
		return Event{}, err
	}
	l.head = Head{Seq: e.Seq, Digest: digestOf(l.line)}
	if l.opts.Mirror != nil {
		l.pending = append(l.pending, bytes.Clone(l.line))
	}
	return e, nil
}

// writeLocked writes l.line. After a failure the file may end with half a line,
// so nothing may follow it.
func (l *Log) writeLocked() error {
	n := len(l.line)
	l.line = append(l.line, '\n')
	written, err := l.file.Write(l.line)
	if err == nil && written < len(l.line) {
		err = io.ErrShortWrite
	}
	l.line = l.line[:n]
	l.size += int64(written)
	if err != nil {
		l.err = fmt.Errorf("%w: writing: %w", ErrUnwritable, err)
	}
	return l.err
}

// Commit returns when every event up to seq is on disk. Calls that wait at the
// same time share one fsync. It takes no context: who stops waiting would not
// know whether the event counts.
func (l *Log) Commit(seq uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	head, committed, lines, err := l.head, l.committed, l.pending, l.err
	switch {
	case err != nil:
		l.mu.Unlock()
		return err
	case seq > head.Seq:
		l.mu.Unlock()
		return fmt.Errorf("committing event %d: the log ends with event %d", seq, head.Seq)
	case seq <= committed.Seq:
		l.mu.Unlock()
		return nil
	}
	l.pending = nil
	l.mu.Unlock()

	if err := l.file.Sync(); err != nil {
		return l.poison(fmt.Errorf("%w: syncing: %w", ErrUnwritable, err))
	}
	l.mu.Lock()
	l.committed = head
	l.mu.Unlock()
	for _, line := range lines {
		l.opts.Mirror(line)
	}
	l.topUp()
	return nil
}

// poison keeps the first failure for every call that follows.
func (l *Log) poison(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	return l.err
}

// Sync commits everything appended so far.
func (l *Log) Sync() error { return l.Commit(l.Head().Seq) }

// AppendSync appends one event and commits it.
func (l *Log) AppendSync(t Type, data any) (Event, error) {
	e, err := l.Append(t, data)
	if err != nil {
		return Event{}, err
	}
	return e, l.Commit(e.Seq)
}

// Head is the last event appended.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Committed is the last event known to be on disk: the head to report to others.
func (l *Log) Committed() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// Boot is the number of this boot, from 1.
func (l *Log) Boot() int { return l.boot }

// Err is nil while the log can be written, and the first failure after that.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Events yields every event of the log from the first one on, those of earlier
// boots and those appended before the call, one line in memory at a time. It
// ends at the first error.
func (l *Log) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l.mu.Lock()
		head := l.head
		c := &chain{parts: slices.Clone(l.parts)}
		l.mu.Unlock()
		c.parts[len(c.parts)-1].until = &head
		c.each(yield)
	}
}

// each turns a walk into an iteration.
func (c *chain) each(yield func(Event, error) bool) {
	stopped := false
	err := c.walk(func(e Event, _ []byte) bool {
		e.Data = bytes.Clone(e.Data)
		stopped = !yield(e, nil)
		return !stopped
	})
	if err != nil && !stopped {
		yield(Event{}, err)
	}
}

// Close commits what was appended and releases the directory.
func (l *Log) Close() error {
	if errors.Is(l.Err(), errClosed) {
		return nil
	}
	err := l.Sync()
	if err == nil {
		err = l.release()
	}
	l.poison(errClosed)
	return errors.Join(err, l.file.Close(), l.lock.Close())
}
