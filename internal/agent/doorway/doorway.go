// SPDX-License-Identifier: Apache-2.0

// Package doorway bounds how many peers may stand at a door without having proved
// who they are. It decides who has to go when it is full; what a proof is,
// it does not know.
//
// A peer that has a proof shows it at once, so it is the oldest ones that go, and
// only after a moment in which anybody with a proof would have shown it. Until then
// newcomers wait in the kernel's queue, which is served in order: a crowd can slow
// the right one down, not keep it out.
package doorway

import (
	"context"
	"time"
)

// Patience is how long nobody is sent away, whatever the crowd.
const Patience = 100 * time.Millisecond

// Door is used by one accepting goroutine; leaving may happen on any.
type Door struct {
	max  int
	left chan *visitor
	here []*visitor // oldest first
}

type visitor struct {
	since time.Time
	evict func()
}

// New makes a door at which max peers may stand.
func New(max int) *Door { return &Door{max: max, left: make(chan *visitor, max)} }

// Enter waits until there is room and lets a peer in. Evict is called, once at most and on
// the accepting goroutine, to send it away. Leave must be called once when the
// peer has proved itself or is gone. Enter fails only when ctx has ended.
func (d *Door) Enter(ctx context.Context, evict func()) (leave func(), err error) {
	v := &visitor{time.Now(), evict}
	for d.reap(); len(d.here) >= d.max; d.reap() {
		oldest := d.here[0]
		timer := time.NewTimer(time.Until(oldest.since.Add(Patience)))
		select {
		case w := <-d.left:
			d.remove(w)
		case <-timer.C:
			oldest.evict()
			d.remove(<-d.left) // somebody leaves now: the one who was sent away, or another
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
	d.here = append(d.here, v)
	return func() { d.left <- v }, nil
}

func (d *Door) reap() {
	for {
		select {
		case v := <-d.left:
			d.remove(v)
		default:
			return
		}
	}
}

func (d *Door) remove(v *visitor) {
	for i, w := range d.here {
		if w == v {
			d.here = append(d.here[:i], d.here[i+1:]...)
			return
		}
	}
}
