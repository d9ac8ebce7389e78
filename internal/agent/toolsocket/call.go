// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

// ErrLost is the end of a call whose connection was lost: nobody saw it end.
var ErrLost = errors.New("the connection to the tools container was lost")

// outputGrace is how long output may come after the end of its call: the two travel on
// connections of their own.
const outputGrace = 2 * time.Second

// Call is a call that was handed to a supervisor.
type Call struct {
	ID string

	started chan struct{} // closed when the call runs
	begun   sync.Once

	epoch wire.Epoch
	link  *link
	mu    sync.Mutex
	clip  *Clip
	got   int64         // bytes of output
	owed  int64         // credit not given back yet
	want  int64         // bytes that exited named; -1 before
	all   chan struct{} // closed when the output is complete
	done  chan struct{} // closed when exited or err is set

	exited wire.Exited
	err    error
}

func newCall(s wire.Start, clip *Clip, l *link) *Call {
	return &Call{ID: s.Call, started: make(chan struct{}), epoch: s.Epoch, link: l, clip: clip, want: -1, all: make(chan struct{}), done: make(chan struct{})}
}

// Wait returns how the call ended and what it wrote. The error is ErrLost or the context's;
// what had been written until then is returned all the same.
func (c *Call) Wait(ctx context.Context) (wire.Exited, Output, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return wire.Exited{}, c.output(), ctx.Err()
	}
	defer c.link.forget(c)
	if c.err != nil {
		return wire.Exited{}, c.output(), c.err
	}
	timer := time.NewTimer(outputGrace)
	defer timer.Stop()
	select {
	case <-c.all:
	case <-c.link.gone:
	case <-timer.C:
	}
	return c.exited, c.output(), nil
}

// Started is closed when every layer of the sandbox is up and the call runs.
func (c *Call) Started() <-chan struct{} { return c.started }

// Stop asks the supervisor to end the call. Its end still has to be waited for.
func (c *Call) Stop() { c.link.send(wire.Frame{Stop: &wire.Stop{Call: c.ID}}) }

func (c *Call) output() Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clip.Output()
}

// write takes output in and returns how much credit to give back now.
func (c *Call) write(p []byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.clip.Write(p)
	c.got, c.owed = c.got+int64(len(p)), c.owed+int64(len(p))
	c.checkLocked()
	if c.owed < wire.InitialCredit/4 {
		return 0
	}
	credit := c.owed
	c.owed = 0
	return credit
}

// end takes the first end that it is told.
func (c *Call) end(e wire.Exited, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	c.exited, c.err, c.want = e, err, e.OutputBytes
	c.checkLocked()
	close(c.done)
}

func (c *Call) checkLocked() {
	if c.want < 0 || c.got < c.want {
		return
	}
	select {
	case <-c.all:
	default:
		close(c.all)
	}
}

// Abandon gives the whole connection up: its supervisor ends everything that it runs.
func (c *Call) Abandon() { c.link.close() }
