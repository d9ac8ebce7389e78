// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Init watches over one call after the other and ends all of each. The caller must have
// locked its goroutine to its thread, which is the only one in the domain.
func Init() int {
	i := initStage{orders: orders{fd: fdOrders}, prepared: map[rules]*sandbox.Prepared{}}
	err := i.enter()
	for err == nil {
		err = i.serve()
	}
	if errors.Is(err, errNoMore) {
		return 0
	}
	_ = i.orders.say(lostMark, []byte(err.Error())) // without a reader there is nobody to tell
	return FailedStatus
}

// errNoMore means that whoever gives orders has none any more, or wants the call ended.
var errNoMore = errors.New("there are no more orders")

type initStage struct {
	scoped   bool // there is a domain that holds the call and nothing else
	orders   orders
	prepared map[rules]*sandbox.Prepared
}

// enter makes this process one that can reach its call and nothing else.
func (i *initStage) enter() error {
	if err := errors.Join(sandbox.ForbidPrivileges(), sandbox.Hide()); err != nil {
		return err
	}
	// It is for the call, where a container is asked to end by itself; the plan resets it there.
	signal.Ignore(unix.SIGTERM)
	// Whoever becomes a child of this process must not inherit its orders.
	unix.CloseOnExec(fdOrders)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming subreaper: %w", err)
	}
	if i.scoped = sandbox.Scoped(); !i.scoped {
		return nil
	}
	return errors.Join(sandbox.EnterScope(), inDomain())
}

// inDomain is the guard of kill(-1), which outside of a signal domain would reach
// every process of the user: it is called on the thread that is about to kill.
func inDomain() error {
	if err := unix.Kill(unix.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		return errors.New("the signal domain does not hold: signalling the parent was not refused")
	}
	return nil
}

// serve takes one order and brings it to its end. An error ends this process.
func (i *initStage) serve() error {
	a, output, err := i.orders.next()
	if err != nil {
		return err
	}
	c, err := i.start(a, output)
	_ = unix.Close(output) // whose end shall be seen when the call's copies are gone
	switch {
	case errors.Is(err, ErrUnfit):
		return i.orders.say(unfitMark, []byte(err.Error()))
	case err != nil:
		return i.orders.say(failMark, []byte(err.Error()))
	}
	_ = i.orders.say(startedMark, nil) // without a reader, there is an end of orders to be seen too
	w := watch{child: c, scoped: i.scoped}
	withdrawn, err := w.untilOver(&i.orders)
	if err != nil {
		return err
	}
	err = i.orders.say(endMark, w.end())
	if withdrawn || w.eased {
		return errors.Join(err, errNoMore)
	}
	return err
}

// prepare makes the rules of a call, or takes those that an earlier one had.
func (i *initStage) prepare(a assignment, output int) (*sandbox.Prepared, error) {
	if a.terminal {
		return sandbox.PrepareTerminal(a.profile, a.workspace, output)
	}
	if ready := i.prepared[a.rules]; ready != nil {
		return ready, nil
	}
	ready, err := sandbox.Prepare(a.profile, a.workspace)
	if err == nil {
		i.prepared[a.rules] = ready
	}
	return ready, err
}

// start forks the child that becomes the call.
func (i *initStage) start(a assignment, output int) (*child, error) {
	ready, err := i.prepare(a, output)
	if err != nil {
		return nil, err
	}
	if a.terminal {
		defer ready.Close()
	}
	confined, err := ready.Steps(wire.HomeDir)
	if err != nil {
		return nil, err
	}
	stdin, err := a.input()
	if err != nil {
		return nil, err
	}
	if stdin != 0 {
		defer unix.Close(stdin)
	}
	plan, err := a.plan(stdin, output, i.orders.fd, confined)
	if err != nil {
		return nil, err
	}
	return fork(plan)
}
