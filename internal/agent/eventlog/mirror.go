// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Mirror copies lines to a writer that may be slow or stuck. Lines wait in a
// bounded queue; when it is full they are dropped, and a line {"dropped":N}
// stands in their place. Nothing ever waits for it.
type Mirror struct {
	w        io.Writer
	maxBytes int
	wake     chan struct{} // holds one token: there is something to do
	done     chan struct{}

	mu     sync.Mutex
	queue  []mirrored
	bytes  int // of the lines that wait or are being written
	closed bool
}

// mirrored is a line, or the marker of dropped ones.
type mirrored struct {
	line    []byte
	dropped int
}

// NewMirror starts a mirror that keeps at most maxBytes of lines waiting.
// A line longer than that still passes when nothing else waits.
func NewMirror(w io.Writer, maxBytes int) *Mirror {
	m := &Mirror{w: w, maxBytes: maxBytes, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go m.run()
	return m
}

// Line queues a copy of line; the newline is added. It never blocks and never
// fails. It may also be given lines that are not events, such as stream deltas.
func (m *Mirror) Line(line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	n := len(m.queue)
	switch {
	case m.bytes == 0 || m.bytes+len(line) < m.maxBytes:
		m.queue = append(m.queue, mirrored{line: append(append(make([]byte, 0, len(line)+1), line...), '\n')})
		m.bytes += len(line) + 1
	case n > 0 && m.queue[n-1].dropped > 0:
		m.queue[n-1].dropped++
	default:
		m.queue = append(m.queue, mirrored{dropped: 1})
	}
	m.wakeUp()
}

func (m *Mirror) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Mirror) run() {
	defer close(m.done)
	for range m.wake {
		for {
			batch, closed := m.take()
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			if !m.write(batch) {
				m.giveUp()
				return
			}
		}
	}
}

func (m *Mirror) take() (batch []mirrored, closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch, m.queue = m.queue, nil
	return batch, m.closed
}

func (m *Mirror) write(batch []mirrored) bool {
	for _, item := range batch {
		line := item.line
		if item.dropped > 0 {
			line = fmt.Appendf(nil, "{\"dropped\":%d}\n", item.dropped)
		}
		_, err := m.w.Write(line)
		m.mu.Lock()
		m.bytes -= len(item.line)
		m.mu.Unlock()
		if err != nil {
			return false
		}
	}
	return true
}

// giveUp stops mirroring: nobody is there to read, and nobody may be kept waiting.
func (m *Mirror) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.queue = true, nil
}

// Close writes out what waits, until ctx ends, and stops the mirror. When ctx
// ends first, its error is returned and a stuck write is left behind.
func (m *Mirror) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.wakeUp()
	m.mu.Unlock()
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the mirror: %w", context.Cause(ctx))
	}
}
