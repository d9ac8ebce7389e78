// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// narrowPatience is how long a connected supervisor may take to confirm a narrowing, beside
// the grace that the class gives to what runs. Then its connection is dropped, and it must empty its container to come back; until it
// does it is reported as overdue, and the controller ends the pod.
const narrowPatience = 5 * time.Second

// aimLocked sets the policy that is to be applied next. What is wider than it can start no
// more from this moment on.
func (a *Agent) aimLocked(p pushed) {
	if a.target != nil && a.target.doc.Digest == p.doc.Digest && a.target.stamp == p.stamp {
		return
	}
	a.target = &p
	if a.endsLocked(p.doc.Policy) {
		a.closed = true
	}
	a.wakeLocked()
}

// standingLocked is the policy applied in this boot; nothing runs before there is one.
func (a *Agent) standingLocked() policy.Policy {
	if a.applied == nil {
		return policy.Policy{}
	}
	return a.applied.doc.Policy
}

// applyPolicies applies one target after the other, always the newest.
func (a *Agent) applyPolicies() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		err := a.awaitLocked(a.root, func() bool {
			return a.target != a.applied || a.expiresLocked() || a.renewsLocked()
		})
		switch {
		case err != nil:
			return
		case a.target != a.applied:
			err = a.applyLocked(a.target)
		case a.expiresLocked():
			err = a.expireLocked()
		case a.renewsLocked():
			err = a.renewLocked()
		}
		if err != nil {
			return
		}
	}
}

// applyLocked applies one policy. A narrowing first ends what runs, everywhere, and the
// results of what it ended are in the log before the policy is: mu is free while it waits.
func (a *Agent) applyLocked(p *pushed) error {
	from, to := a.standingLocked(), p.doc.Policy
	first := a.applied == nil
	killed := 0
	if first || a.endsLocked(to) {
		var err error
		if killed, err = a.narrowLocked(from.Profile().Meet(to.Profile())); err != nil {
			return err
		}
	}
	widens := to.Profile() != a.bound
	if widens {
		a.closed = true
		a.endTerminalsLocked(terminalWidened)
		a.epoch.Counter++
	}
	if err := a.recordLocked(a.f.planPolicy(*p, p.workspace, first, a.epoch.Counter, killed)...); err != nil {
		return err
	}
	if widens {
		a.bound = to.Profile()
		a.tools.Widen(a.epoch, a.bound)
	}
	a.applied = p
	a.o.Log.Info("A policy is applied", "mode", to.Mode.String(), "network", to.Network.String(),
		"approval", to.Approval.String(), "digest", p.doc.Digest.Short(), "killed", killed, "epoch", a.epoch.String())
	a.reopenLocked()
	return nil
}

// reopenLocked opens the gate again, unless a newer target is narrower still.
func (a *Agent) reopenLocked() {
	a.closed = a.endsLocked(a.target.doc.Policy)
	a.publishLocked()
}

// narrowLocked returns when nothing wider than bound lives in any container and all that
// was ended has its result. A container that is away is waited for until it is back.
func (a *Agent) narrowLocked(bound policy.Profile) (killed int, err error) {
	a.closed = true
	a.epoch.Counter++
	a.bound = bound
	a.drains = a.epoch
	epoch := a.drains
	if a.lease.sweeping {
		a.giveReasonLocked(terminalUnheard)
	} else {
		a.giveReasonLocked(terminalNarrowed)
	}
	grace := a.graceLocked()
	a.tools.Narrow(epoch, bound, grace)
	impatient := time.AfterFunc(time.Duration(grace)*time.Second+narrowPatience, func() { a.giveUp(epoch) })
	defer impatient.Stop()
	err = a.awaitLocked(a.root, func() bool {
		var missing []string
		missing, killed = a.tools.Unconfirmed(epoch)
		return len(missing) == 0 && a.running == 0 && a.livingLocked() == 0
	})
	return killed, err
}

// graceLocked is how many seconds what a narrowing ends has to end by itself.
func (a *Agent) graceLocked() int64 {
	if a.config == nil {
		return 0
	}
	return a.config.GraceSeconds
}

// giveUp is called when a narrowing has not been confirmed in time.
func (a *Agent) giveUp(epoch wire.Epoch) {
	a.tools.Drop(epoch)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drains == epoch {
		a.overdue = epoch
		a.publishLocked()
	}
}
