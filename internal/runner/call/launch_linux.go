// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// Running is a call on its way. Its methods are called in the order Begin, Wait, Close;
// Kill at any time.
type Running struct {
	// Output is what the call writes, standard output and error in one; non-blocking. Of a
	// call in a terminal it is nil: who has the terminal's other end reads it there.
	Output *os.File

	order  []byte // what is left to be handed over
	failed error  // what went wrong with it
	init   *initProcess
	pool   *Pool // where init came from,
	times  int   // and when
	over   *End  // once init has said that nothing is left

	mu     sync.Mutex
	begun  bool
	killed bool
	closed bool
}

// ErrLost means that the process that watched over a call ended without a report:
// something of the call may be left.
var ErrLost = errors.New("the process that watched over the call was ended")

// Begin waits until the call runs: every restriction is in force and was tested. An
// error says why it does not; then nothing of it has run or will, if Wait says so too.
func (c *Running) Begin() error {
	err := c.failed
	if err == nil && len(c.order) > 0 {
		_, err = c.init.conn.Write(c.order)
	}
	if err != nil {
		return fmt.Errorf("the sandbox was not put up: its process ended early (%w)", err)
	}
	mark, text, err := c.init.hear()
	switch {
	case err != nil:
		return fmt.Errorf("the sandbox was not put up: its process ended early (%w)", err)
	case mark == startedMark:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.begun = true
		return nil
	case mark == failMark:
		c.over = new(End)
		return errors.New(string(text))
	case mark == unfitMark:
		c.over = new(End)
		return unfit(text)
	case mark == endMark:
		c.end(text)
		return errWithdrawn
	}
	return fmt.Errorf("the sandbox was not put up: %s", text)
}

// Wait waits for the end of the call.
func (c *Running) Wait() (End, error) {
	if c.over == nil {
		mark, text, err := c.init.hear()
		switch {
		case err != nil:
			return End{}, ErrLost
		case mark == lostMark:
			return End{}, fmt.Errorf("%w: %s", ErrLost, text)
		case mark != endMark:
			return End{}, fmt.Errorf("%w: it said %q", ErrLost, mark)
		}
		c.end(text)
	}
	if c.over == nil {
		return End{}, ErrLost
	}
	if c.wasKilled() {
		<-c.init.gone
	}
	return *c.over, nil
}

func (c *Running) end(text []byte) {
	if e, err := decodeEnd(text); err == nil {
		c.over = &e
	}
}

// Kill ends the call and all that it started. Wait tells when that is so.
func (c *Running) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.killed = true
		c.init.halfClose()
	}
}

// Ease lets the call end by itself: what it started may go on when its command has ended,
// until nothing of it is left, or Kill. Whoever eases a call has asked its processes to
// end, or is about to. One that does not run yet is killed: it had nothing to finish.
func (c *Running) Ease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.killed:
	case c.begun:
		c.init.ease()
	default:
		c.killed = true
		c.init.halfClose()
	}
}

func (c *Running) wasKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Gone is closed when the process that watches over the call has been reaped.
func (c *Running) Gone() <-chan struct{} { return c.init.gone }

// Close frees what the call had, Output included. Its init can take another.
func (c *Running) Close() {
	if c.Output != nil {
		_ = c.Output.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.over == nil || c.over.Left || c.killed {
		_ = c.init.conn.Close()
		return
	}
	c.pool.put(c.init, c.times)
}

// unfit is an ErrUnfit whose text came from init.
type unfit string

func (e unfit) Error() string   { return string(e) }
func (unfit) Is(err error) bool { return err == ErrUnfit }
