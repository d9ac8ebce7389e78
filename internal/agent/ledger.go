// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"reflect"
)

// recordLocked writes events and takes them in. They are on disk when it returns, so that
// whatever follows, the next boot knows of it. The first failure ends the agent:
// nobody can know what the disk holds then, and a boot reads what it really does.
func (a *Agent) recordLocked(entries ...entry) error {
	if a.fatal != nil {
		return a.fatal
	}
	for _, n := range entries {
		e, err := a.log.Append(n.kind, n.data)
		if err == nil {
			err = a.f.apply(e)
		}
		if err != nil {
			return a.failLocked(fmt.Errorf("logging %s: %w", n.kind, err))
		}
	}
	if err := a.log.Commit(a.f.seq); err != nil {
		return a.failLocked(err)
	}
	return nil
}

// record is recordLocked and publishLocked.
func (a *Agent) record(plan func(*fold) []entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.recordLocked(plan(a.f)...); err != nil {
		return err
	}
	a.publishLocked()
	return nil
}

func (a *Agent) failLocked(err error) error {
	if a.fatal == nil {
		a.fatal = err
		a.o.Log.Error("The event log cannot be written; ending", "error", err)
		a.cancel()
		a.publishLocked()
	}
	return a.fatal
}

// publishLocked makes the present state visible. The revision grows with everything but the log's head.
func (a *Agent) publishLocked() {
	next := a.observeLocked()
	next.Revision = a.observed.Revision
	same := a.observed
	same.Log = next.Log
	if !reflect.DeepEqual(next, same) {
		next.Revision++
	}
	a.observed = next
	a.wakeLocked()
}

func (a *Agent) wakeLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// awaitLocked waits until a condition holds; mu is free meanwhile. It fails when ctx
// ends, or the agent.
func (a *Agent) awaitLocked(ctx context.Context, holds func() bool) error {
	for !holds() {
		changed := a.changed
		a.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-a.root.Done():
			err = context.Canceled
		}
		a.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}
