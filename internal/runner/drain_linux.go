// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

// drain is the grace of a narrowing: what runs has been asked to end. Nothing starts
// meanwhile. It is over when nothing is left, when its time is over, or with the session.
type drain struct {
	asked   int           // processes that were asked to end
	end     time.Time     // of the grace
	sooner  chan struct{} // the end has moved
	answers []wire.Epoch  // narrowings that are answered when all has ended
}

// lookAgain is how often is looked for the end of processes that are nobody's children here.
const lookAgain = 20 * time.Millisecond

// graceOf is how long what a narrowing ends may take.
func graceOf(n *wire.Narrow) time.Duration {
	return time.Duration(max(0, min(n.Grace, wire.MaxGraceSeconds))) * time.Second
}

// drainLocked gives what runs its grace, and reports whether there is anything that needs
// one. A narrowing during the grace of another shortens it, and lengthens it never. The gate is held.
func (s *session) drainLocked(n *wire.Narrow) bool {
	end := time.Now().Add(graceOf(n))
	if d := s.draining; d != nil {
		d.answers = append(d.answers, n.Epoch)
		if end.Before(d.end) {
			d.end = end
			select {
			case d.sooner <- struct{}{}:
			default: // it has not been taken note of yet that the end moved before
			}
		}
		return true
	}
	if graceOf(n) == 0 {
		return false
	}
	s.inits.Empty() // nothing else would tell them that their time is over
	for _, c := range s.calls {
		c.dies(wire.Narrowing)
		if c.inTerminal() {
			c.running.Kill() // a shell that waits for input would only use the time up
			continue
		}
		c.running.Ease()
	}
	asked, err := s.procs.ask()
	if err != nil || asked == 0 && len(s.calls) == 0 {
		return false // the sweep will say what is wrong
	}
	s.draining = &drain{asked: asked, end: end, sooner: make(chan struct{}, 1), answers: []wire.Epoch{n.Epoch}}
	s.drains.Go(s.drain)
	return true
}

// drain waits for the end of the grace, ends what is left and answers.
func (s *session) drain() {
	s.awaitDrained()
	s.gate.Lock()
	killed := max(s.draining.asked, s.sweepLocked(wire.Narrowing))
	s.gate.Unlock()
	s.over.Wait() // each call's exited goes out first; none starts before the drain is over
	s.gate.Lock()
	defer s.gate.Unlock()
	answers := s.draining.answers
	s.draining = nil
	for _, e := range answers {
		if s.tell(wire.Frame{Narrowed: &wire.Narrowed{Epoch: e, Killed: killed}}) != nil {
			s.conns.close() // which shows where it is read
			return
		}
		killed = 0 // each is told once
	}
}

func (s *session) awaitDrained() {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		s.gate.Lock()
		left := time.Until(s.draining.end)
		s.gate.Unlock()
		if left <= 0 {
			return
		}
		over := time.NewTimer(left)
		select {
		case <-s.ending:
			over.Stop()
			return
		case <-s.draining.sooner:
		case <-over.C:
		case <-s.procs.childless:
		case <-look.C:
		}
		over.Stop()
		if none, err := s.procs.alone(); none || err != nil {
			return
		}
	}
}
