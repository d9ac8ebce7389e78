// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
)

const (
	// leaseGrace is how long calls may still run when the lease is over.
	leaseGrace = 10 * time.Second
	// lookAtLease is how often is looked whether the lease is over.
	lookAtLease = time.Second

	textUnheard = "stopped: the operator was not heard for longer than the session may run without it"
)

// lease is how long the agent may go on without hearing the operator. Its end is a pause and
// no change of policy: the gate is shut at once, then everything that runs is ended.
type lease struct {
	length   time.Duration // 0: there is none
	heard    time.Duration // when the operator was heard last, by the clock
	expired  bool          // it is in the log that it is over, and nothing runs
	sweeping bool          // what runs is being ended
}

// boottime is a clock that also runs while the machine sleeps (CLOCK_BOOTTIME, Linux 2.6.39) and
// that nobody sets.
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("agent: reading CLOCK_BOOTTIME: " + err.Error()) // every Linux has it
	}
	return time.Duration(t.Nano())
}

// Heard says that the operator has made a request. It renews the lease.
func (a *Agent) Heard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := a.leaseOverLocked()
	a.lease.heard = a.o.Boottime()
	if over || a.lease.expired {
		a.wakeLocked()
	}
}

// leaseOverLocked asks the clock: no call starts and no request leaves once it says so.
func (a *Agent) leaseOverLocked() bool {
	return a.lease.length > 0 && a.o.Boottime()-a.lease.heard >= a.lease.length
}

// expiresLocked reports whether the end of the lease is to be carried out: calls that run have
// their grace. An agent that does nothing needs no operator.
func (a *Agent) expiresLocked() bool {
	if a.lease.expired || !a.leaseOverLocked() || a.applied == nil || a.f.ended || a.stopping {
		return false
	}
	if a.running > 0 || a.livingLocked() > 0 {
		return a.o.Boottime()-a.lease.heard >= a.lease.length+leaseGrace
	}
	return a.f.turn.open || a.f.next() >= 0
}

func (a *Agent) renewsLocked() bool {
	return a.lease.expired && a.applied != nil && !a.leaseOverLocked()
}

// expireLocked ends all that runs and logs that the lease is over. mu is free while it waits.
func (a *Agent) expireLocked() error {
	a.o.Log.Warn("The operator was not heard in time: pausing", "lease", a.lease.length.String())
	a.lease.sweeping = true
	killed, err := a.narrowLocked(a.bound)
	a.lease.sweeping = false
	if err != nil {
		return err
	}
	if err := a.recordLocked(entry{eventlog.TypeLeaseExpired, eventlog.LeaseExpired{Epoch: a.epoch.Counter, Killed: killed}}); err != nil {
		return err
	}
	a.lease.expired = true
	a.reopenLocked()
	return nil
}

func (a *Agent) renewLocked() error {
	if err := a.recordLocked(entry{eventlog.TypeLeaseRenewed, eventlog.LeaseRenewed{Epoch: a.epoch.Counter}}); err != nil {
		return err
	}
	a.lease.expired = false
	a.o.Log.Info("The operator is heard again: going on")
	a.reopenLocked()
	return nil
}

// watchLease has the end of the lease carried out in time, and that of a request to a person.
func (a *Agent) watchLease() {
	tick := time.NewTicker(lookAtLease)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.mu.Lock()
			a.expireAskLocked()
			if a.expiresLocked() {
				a.wakeLocked()
			}
			a.mu.Unlock()
		case <-a.root.Done():
			return
		}
	}
}

// unheard reports whether what is ended now is ended because the operator is not heard.
func (a *Agent) unheard() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease.sweeping
}
