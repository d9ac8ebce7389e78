// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// maxCalls is how many calls may run at once.
const maxCalls = 32

// session is the time of one connection to the agent.
type session struct {
	conns *connections
	procs *reaper
	inits *call.Pool // of this connection's time

	// gate orders everything that starts something and everything that ends all: who
	// holds it can be sure that no call passes from ordered to running meanwhile.
	gate     sync.Mutex
	stands   standing
	closed   bool
	draining *drain // a narrowing's grace, while there is one
	calls    map[string]*active
	over     sync.WaitGroup // the calls' goroutines
	drains   sync.WaitGroup // the goroutine of the grace
	ending   chan struct{}  // closed when the session ends
}

func newSession(c *connections, r *reaper, stands standing) *session {
	return &session{conns: c, procs: r, inits: call.NewPool(r), stands: stands, calls: map[string]*active{}, ending: make(chan struct{})}
}

// serve takes orders until the connection or the context ends. When it returns, the
// container is empty.
func (s *session) serve(ctx context.Context) error {
	ended := make(chan error, 2)
	go func() { ended <- s.readControl() }()
	go func() { ended <- s.readData() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = s.terminate()
	}
	s.endAll(wire.Cancelled, "the connection to the agent ended")
	s.conns.close()
	s.over.Wait()
	s.drains.Wait()
	return err
}

func (s *session) readControl() error {
	for {
		f, err := wire.ReadFrame(s.conns.control.in)
		if err != nil {
			return err
		}
		switch {
		case f.Start != nil:
			err = s.start(f.Start)
		case f.Stop != nil:
			s.stop(f.Stop.Call)
		case f.Narrow != nil:
			err = s.narrow(f.Narrow)
		case f.Widen != nil:
			err = s.widen(f.Widen)
		default:
			name, _ := f.Member()
			err = fmt.Errorf("the frame %s is not one that a supervisor takes", name)
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) readData() error {
	for {
		f, err := wire.ReadFrame(s.conns.data.in)
		if err != nil {
			return err
		}
		if f.Credit == nil || f.Credit.Bytes < 0 || f.Credit.Bytes > 1<<40 {
			return errors.New("a frame on the data connection is no credit")
		}
		if c := s.call(f.Credit.Call); c != nil { // it may have ended meanwhile
			c.out.give(f.Credit.Bytes)
		}
	}
}

func (s *session) call(id string) *active {
	s.gate.Lock()
	defer s.gate.Unlock()
	return s.calls[id]
}

// terminalOf is the terminal that came beside an order for one, or nil. The caller closes it.
func (s *session) terminalOf(st *wire.Start) (*os.File, error) {
	if st.Tool != tool.TerminalName {
		return nil, nil
	}
	fd, ok := s.conns.control.sent.next()
	if !ok {
		return nil, fmt.Errorf("the call %q came without its terminal", st.Call)
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

// start admits a call and launches it. An error ends the connection.
func (s *session) start(st *wire.Start) error {
	terminal, err := s.terminalOf(st)
	if err != nil {
		return err
	}
	if terminal != nil {
		defer terminal.Close() // the command has its own
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return nil
	}
	if st.Call == "" || s.calls[st.Call] != nil {
		return fmt.Errorf("a call named %q runs already", st.Call)
	}
	decoded, refusal := s.stands.admit(st)
	if refusal == nil && s.draining != nil {
		refusal = refused(wire.DeniedProfile, "nothing starts until what a narrowing ends has ended")
	}
	if refusal == nil {
		refusal = s.stands.besides(st, s.calls)
	}
	var c *active
	if refusal == nil {
		c = newActive(s, st, decoded.Arguments)
		refusal = c.launch(terminal)
	}
	if refusal != nil {
		return s.tell(wire.Frame{Exited: refusal.exited(st.Call)})
	}
	s.calls[st.Call] = c
	s.over.Go(c.run)
	return nil
}

// besides decides whether a call may run beside those that run already.
func (s standing) besides(st *wire.Start, running map[string]*active) *refusal {
	for _, c := range running {
		if st.Granted || c.start.Granted {
			return refused("", "a call with a grant runs alone, and another one runs here")
		}
	}
	if len(running) >= s.most() {
		return refused("", "%d calls run already, which is the most on this node", s.most())
	}
	return nil
}

func (s *session) stop(id string) {
	if c := s.call(id); c != nil { // it may have ended meanwhile
		c.endBecause(wire.Cancelled)
	}
}

// narrow ends everything in the container and then says so. With a grace it does not wait
// for that: orders are still taken.
func (s *session) narrow(n *wire.Narrow) error {
	s.gate.Lock()
	err := s.enter(n.Epoch, n.Bound)
	if err != nil || s.closed || s.drainLocked(n) {
		s.gate.Unlock()
		return err
	}
	killed := s.sweepLocked(wire.Narrowing)
	s.gate.Unlock()
	s.over.Wait() // each call's exited goes out first; nobody but this goroutine starts calls
	return s.tell(wire.Frame{Narrowed: &wire.Narrowed{Epoch: n.Epoch, Killed: killed}})
}

func (s *session) widen(w *wire.Widen) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	return s.enter(w.Epoch, w.Bound)
}

// enter begins an epoch. The gate is held.
func (s *session) enter(e wire.Epoch, bound policy.Profile) error {
	if e.Before(s.stands.epoch) {
		return fmt.Errorf("epoch %s is over, it is %s", e, s.stands.epoch)
	}
	s.stands.epoch, s.stands.bound = e, bound
	return nil
}

// sweepLocked ends every call and every process. The gate is held.
func (s *session) sweepLocked(cause wire.Cause) int {
	for _, c := range s.calls {
		c.dies(cause)
		c.out.close()
	}
	return s.emptyLocked()
}

// emptyLocked ends every process. The gate is held.
func (s *session) emptyLocked() int {
	s.inits.Empty() // what was started ahead of time belongs to the epoch too
	killed, err := s.procs.sweep()
	if err != nil {
		// Nobody can say what lives here: the end of the first process ends it all.
		panic(fmt.Sprintf("sweeping the container: %v", err))
	}
	return killed
}

// endAll is the end of the session's calls; none starts any more.
func (s *session) endAll(cause wire.Cause, detail string) {
	s.gate.Lock()
	if !s.closed {
		close(s.ending)
	}
	s.closed = true
	for _, c := range s.calls {
		c.explain(detail)
	}
	s.sweepLocked(cause)
	s.gate.Unlock()
}

// terminate is the orderly end: the agent hears that the container is empty.
func (s *session) terminate() error {
	s.endAll(wire.Cancelled, "the tools container is being ended")
	s.over.Wait()
	return errors.Join(context.Canceled, s.tell(wire.Frame{Terminating: &wire.Terminating{}}))
}

// sweepLeft ends what a call left that ran alone in its container, and returns how many
// processes that were. What it wrote is still to be sent.
func (s *session) sweepLeft() int {
	s.gate.Lock()
	defer s.gate.Unlock()
	return s.emptyLocked()
}

// sweepLost empties the container after the process that watched over a call was lost.
func (s *session) sweepLost() {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.sweepLocked(wire.Finished)
}

func (s *session) tell(f wire.Frame) error { return s.conns.control.send(f, controlTimeout) }

func (s *session) forget(id string) {
	s.gate.Lock()
	defer s.gate.Unlock()
	delete(s.calls, id)
}

// timeoutMillis is the limit of the call: what the arguments and the agent say, and never more
// than the most. A terminal has none.
func timeoutMillis(st *wire.Start, a tool.Arguments) int64 {
	most := tool.MaxTimeout.Milliseconds()
	if b, ok := a.(*tool.Bash); ok {
		most = min(most, b.Timeout().Milliseconds())
	}
	if l := st.Limits.TimeoutMillis; l > 0 {
		return min(most, l)
	}
	return most
}
