// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// watch is the time of one call, from its exec on.
type watch struct {
	child  *child
	scoped bool

	status unix.WaitStatus // of the child, once it has ended
	ended  bool
	eased  bool // what the command left may end by itself
	swept  bool
	killed int // by the sweep
}

// reapEvery is how long, in milliseconds, an orphan of a call may stay unreaped.
const reapEvery = 20

// untilOver returns once nothing of the call is left. withdrawn says that the call was
// ended because whoever ordered it wants, or is gone.
func (w *watch) untilOver(from *orders) (withdrawn bool, err error) {
	defer unix.Close(w.child.pidfd)
	fds := []unix.PollFd{{Fd: int32(from.fd), Events: unix.POLLIN}, {Fd: int32(w.child.pidfd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	for {
		n, err := unix.Poll(fds, reapEvery)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, errors.Join(fmt.Errorf("watching the call: %w", err), w.sweep())
		}
		if n > 0 && fds[0].Revents != 0 {
			withdrawn = !from.eased()
			w.eased = !withdrawn
		}
		none := w.reap(unix.WNOHANG)
		switch {
		case none:
			return withdrawn, nil
		case withdrawn || w.ended && !w.eased:
			return withdrawn, w.sweep()
		case w.ended:
			fds[1].Fd = -1 // it would go on saying that the command has ended
		}
	}
}

// reap collects who has ended, and reports whether nobody is left: orphans are handed
// to init before they can be missed.
func (w *watch) reap(options int) (none bool) {
	for {
		var ws unix.WaitStatus
		// WALL: also children that announce their end by another signal, or by none.
		pid, err := unix.Wait4(-1, &ws, unix.WALL|options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		case !ws.Exited() && !ws.Signaled():
			// A command can make init its tracer; such stops are no ends.
		case pid == w.child.pid:
			w.status, w.ended = ws, true
		case w.swept && ws.Signaled() && ws.Signal() == unix.SIGKILL:
			w.killed++
		}
	}
}

// sweep kills the domain and waits until nobody is left. The kernel lets no process
// that the signal reaches complete a fork. kill answers success also where it was
// refused: the truth is in what there is to wait for.
func (w *watch) sweep() error {
	if !w.scoped {
		return w.endChild()
	}
	if err := inDomain(); err != nil {
		return err
	}
	w.swept = true
	_ = unix.Kill(-1, unix.SIGKILL)
	w.reap(0)
	return nil
}

// endChild ends the command alone. Without a domain, kill(-1) would reach everybody: the
// rest is for the first process of the container, which inherits it.
func (w *watch) endChild() error {
	if !w.ended {
		_ = unix.Kill(w.child.pid, unix.SIGKILL) // it is ours, and not reaped yet
	}
	for !w.ended {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(w.child.pid, &ws, unix.WALL, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the command: %w", err)
		}
		w.status, w.ended = ws, ws.Exited() || ws.Signaled()
	}
	return nil
}

func (w *watch) end() []byte { return encodeEnd(w.status, w.killed, !w.scoped) }
