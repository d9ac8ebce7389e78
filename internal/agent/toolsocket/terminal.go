// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/pty"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// typePatience is how long a command may leave what is typed unread.
	typePatience = 2 * time.Second
	// floodPause slows down who writes more than is kept: what is lost anyway must not cost time.
	floodPause = 5 * time.Millisecond
)

// ErrLineTooLong is what Type says of a line that the terminal would cut.
var ErrLineTooLong = fmt.Errorf("a line of more than %d bytes cannot be typed here: the terminal takes whole lines and drops the rest. "+
	"Write it into a file", pty.MaxLine-1)

// Terminal is a call that runs in a terminal, of which this is the near end. The supervisor
// passes the far end on and sees nothing of what is typed or written.
type Terminal struct {
	*Call
	near *os.File
	keep int

	mu      sync.Mutex
	text    []byte // that was written and not taken yet, the newest part
	dropped int64  // bytes in front of it
	wrote   time.Time
	changed chan struct{} // closed and replaced when something happens
	over    bool          // the command has ended, and all that it wrote is here
	exited  wire.Exited
	err     error
}

// StartTerminal hands a call to a container that runs in a new terminal. At most keep bytes of what
// it writes wait to be taken. Ended is called once it has. With an error nothing was sent.
func (s *Server) StartTerminal(container string, start wire.Start, rows, cols, keep int, ended func()) (*Terminal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.linkLocked(container)
	if l == nil {
		return nil, ErrNotConnected
	}
	p, err := pty.Open(rows, cols)
	if err != nil {
		return nil, err
	}
	t := &Terminal{Call: l.start(start, NewClip(0), p.Far), near: p.Near, keep: keep, wrote: time.Now(), changed: make(chan struct{})}
	written := make(chan struct{})
	s.wg.Go(func() {
		defer close(written)
		t.read()
	})
	s.wg.Go(func() {
		t.await(written)
		ended()
	})
	return t, nil
}

// read takes in what is written until nobody has the far end any more.
func (t *Terminal) read() {
	b := make([]byte, 4<<10)
	for {
		n, err := t.near.Read(b)
		flood := t.took(b[:n])
		if err != nil { // EIO: the far end is closed everywhere
			return
		}
		if flood {
			time.Sleep(floodPause)
		}
	}
}

func (t *Terminal) took(b []byte) (flood bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) == 0 {
		return false
	}
	t.text = append(t.text, b...)
	if n := len(t.text) - t.keep; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
		t.dropped += int64(n)
		flood = true
	}
	t.wrote = time.Now()
	t.tellLocked()
	return flood
}

func (t *Terminal) tellLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// await sees the terminal to its end.
func (t *Terminal) await(written <-chan struct{}) {
	exited, _, err := t.Wait(context.Background())
	select {
	case <-written:
	case <-time.After(outputGrace): // somebody else has got hold of the far end
	}
	_ = t.near.Close()
	<-written
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.exited, t.err = true, exited, err
	t.tellLocked()
}

// Over reports whether the command has ended, and how. The error is ErrLost.
func (t *Terminal) Over() (over bool, e wire.Exited, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over, t.exited, t.err
}

// AwaitEnd waits until the command has ended, or ctx has.
func (t *Terminal) AwaitEnd(ctx context.Context) error {
	for {
		t.mu.Lock()
		over, changed := t.over, t.changed
		t.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AwaitOutput waits for something to be written and then for nothing to be for a while, at
// most for a time, and not beyond the end of the command or of ctx.
func (t *Terminal) AwaitOutput(ctx context.Context, most, idle time.Duration) {
	begun := time.Now()
	for {
		t.mu.Lock()
		last, some, over, changed := t.wrote, len(t.text) > 0, t.over, t.changed
		t.mu.Unlock()
		left := most - time.Since(begun)
		if some {
			if last.Before(begun) {
				last = begun
			}
			left = min(left, idle-time.Since(last))
		}
		if over || left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// Take returns what was written since the last time: its newest part, and how much of it is lost.
func (t *Terminal) Take() Output {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := Output{Tail: bytes.Clone(t.text), Omitted: t.dropped}
	t.text, t.dropped = t.text[:0], 0
	return o
}

// Type types. It returns how many bytes the terminal took, which is not all of them when the
// command does not read for a while.
func (t *Terminal) Type(text string) (int, error) {
	lines, err := pty.LineMode(t.near)
	if err != nil {
		return 0, err
	}
	if lines && longestLine(text) >= pty.MaxLine {
		return 0, ErrLineTooLong
	}
	if err := t.near.SetWriteDeadline(time.Now().Add(typePatience)); err != nil {
		return 0, err
	}
	n, err := t.near.WriteString(text)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

func longestLine(text string) (longest int) {
	n := 0
	for i := range len(text) {
		switch text[i] {
		case '\n', '\r', 4: // ends of lines, and of the file
			n = 0
		default:
			n++
			longest = max(longest, n)
		}
	}
	return longest
}

// Resize sets the terminal's size.
func (t *Terminal) Resize(rows, cols int) error { return pty.Resize(t.near, rows, cols) }
