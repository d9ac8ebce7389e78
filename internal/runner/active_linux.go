// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// maxOutput is how many bytes a call may send where the agent sets no limit.
const maxOutput = 64 << 20

// lostAfter is how long the process that watches over a call may take to end it.
// Beyond it the whole container is swept.
const lostAfter = 5 * time.Second

// cgroups is where a container sees its control groups.
const cgroups = "/sys/fs/cgroup"

// active is one call between its start and its exited.
type active struct {
	session *session
	start   *wire.Start
	args    tool.Arguments
	out     *outlet

	running *call.Running // from launch on
	ooms    uint64        // of the container, before launch

	mu     sync.Mutex
	cause  wire.Cause // why it ends; the first one stays
	detail string
}

func newActive(s *session, st *wire.Start, args tool.Arguments) *active {
	limit := int64(maxOutput)
	if l := st.Limits.OutputBytes; l > 0 {
		limit = min(limit, l)
	}
	return &active{session: s, start: st, args: args, out: newOutlet(limit)}
}

// run brings the launched call to exited.
func (c *active) run() {
	exited := c.perform()
	exited.Call = c.start.Call
	c.session.forget(c.start.Call)
	_ = c.session.tell(wire.Frame{Exited: exited}) // if the agent is gone, so is all interest in it
}

func (c *active) perform() *wire.Exited {
	r := c.running
	defer r.Close()
	if c.inTerminal() {
		return c.performInTerminal(r)
	}
	limit := time.AfterFunc(time.Duration(timeoutMillis(c.start, c.args))*time.Millisecond, func() { c.endBecause(wire.TimedOut) })
	defer limit.Stop()
	if refusal := c.begin(r); refusal != nil {
		return refusal.exited("")
	}
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		pump(r.Output, c.out, c.send)
		if c.out.isFull() {
			c.endBecause(wire.OutputLimit)
		}
	}()
	end, err := r.Wait()
	c.concludes(err)
	if err == nil && (end.Left || c.start.Granted) { // a grant ends with its call, whatever that may have left
		end.Processes += c.session.sweepLeft()
	}
	// Only now can nothing more be written: what is in the pipe is all there is.
	_ = r.Output.SetReadDeadline(time.Unix(1, 0))
	c.drained(pumped)
	return c.exited(end, err)
}

func (c *active) inTerminal() bool {
	_, terminal := c.args.(*tool.Terminal)
	return terminal
}

// performInTerminal is perform for a command whose input and output are a terminal, of which
// the agent has the other end. It has no time limit: it ends when it is stopped.
func (c *active) performInTerminal(r *call.Running) *wire.Exited {
	if refusal := c.begin(r); refusal != nil {
		return refusal.exited("")
	}
	end, err := r.Wait()
	c.concludes(err)
	return c.exited(end, err)
}

// launch lets the call run in a process of its own. The gate is held: that process
// belongs to the epoch, whoever ends the epoch holds the gate too, and ends it. So what
// passes here runs before the epoch's end or not at all.
func (c *active) launch(terminal *os.File) *refusal {
	s := c.session
	o := call.Order{Profile: c.start.Profile, Tool: c.start.Tool, Arguments: c.start.Arguments, Workspace: s.stands.workspace, Version: c.start.Version,
		Variables: s.stands.variables, Decoded: c.args}
	var r *call.Running
	var err error
	c.ooms = outOfMemory(cgroups)
	if terminal != nil {
		r, err = s.inits.LaunchIn(o, int(terminal.Fd()))
	} else {
		r, err = s.inits.Launch(o)
	}
	if err != nil {
		return setupFailed("%v", err)
	}
	c.running = r
	return nil
}

// begin waits until the call runs.
func (c *active) begin(r *call.Running) *refusal {
	if err := r.Begin(); err != nil {
		return c.notRun(r, err)
	}
	_ = c.session.tell(wire.Frame{Started: &wire.Started{Call: c.start.Call}}) // a broken connection shows where it is read
	return nil
}

// notRun ends a call that did not run, and says why it did not.
func (c *active) notRun(r *call.Running, why error) *refusal {
	r.Kill()
	end, err := r.Wait()
	c.concludes(err)
	if end.Left && err == nil {
		c.session.sweepLeft()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != wire.Finished {
		return &refusal{cause: c.cause, detail: c.detail}
	}
	if err != nil {
		why = fmt.Errorf("%w (%w)", why, err)
	}
	if errors.Is(why, call.ErrUnfit) {
		return refused("", "%v", why)
	}
	return setupFailed("%v", why)
}

// concludes notes that init is gone. If it could not say that nothing is left, and
// nobody has swept anyway, the container is swept.
func (c *active) concludes(err error) {
	c.dies(wire.Finished)
	if err != nil && !c.isNarrowed() {
		c.session.sweepLost()
	}
}

func (c *active) isNarrowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == wire.Narrowing
}

// dies notes why the call ends, when somebody else ends it. It reports whether it had not ended before.
func (c *active) dies(cause wire.Cause) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != "" {
		return false
	}
	c.cause = cause
	return true
}

// endBecause ends the call, unless it has ended. One that a narrowing lets end by itself
// has no more time than others.
func (c *active) endBecause(cause wire.Cause) {
	if !c.dies(cause) && !c.isNarrowed() {
		return
	}
	c.running.Kill()
	go func() {
		select {
		case <-c.running.Gone():
		case <-time.After(lostAfter):
			c.session.sweepLost()
		}
	}()
}

func (c *active) explain(detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == "" {
		c.detail = detail
	}
}

func (c *active) send(b []byte) error {
	return c.session.conns.data.send(wire.Frame{Output: &wire.Output{Call: c.start.Call, Data: b}}, 0)
}

// drained waits until what was left in the pipe has been sent, or nothing more will be.
func (c *active) drained(pumped <-chan struct{}) {
	select {
	case <-pumped:
	case <-c.out.closed:
	}
}

func (c *active) exited(end call.End, err error) *wire.Exited {
	sent := c.out.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &wire.Exited{Cause: c.cause, Detail: c.detail, OutputBytes: sent, Processes: end.Processes, OutOfMemory: outOfMemory(cgroups) > c.ooms}
	if c.cause != wire.Finished {
		return e
	}
	if err != nil {
		e.Signal, e.Detail = "SIGKILL", err.Error()+"; everything in the container was ended with it"
		return e
	}
	e.Status, e.Signal = end.Status, end.Signal
	switch c.args.(type) {
	case *tool.Bash, *tool.Terminal:
	default:
		e.Status, e.Denial = call.FileToolStatus(end)
	}
	return e
}
