// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper collects the children of the container's first process, and can end all
// other processes of the container.
type reaper struct {
	mu       sync.Mutex
	children map[int]chan struct{} // started here, not yet reaped
	killed   int                   // processes of calls that a sweep ended

	childless chan struct{} // has something when there was no child left
}

// newReaper refuses to work anywhere but as PID 1 of a container with its own /proc:
// only there does kill(-1) mean "everything in this container".
func newReaper() (*reaper, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("the supervisor must be the first process of its container (shareProcessNamespace must be false)")
	}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("looking for the container's own /proc: %w", err)
	}
	if self != "1" {
		return nil, fmt.Errorf("/proc is not the container's own: /proc/self is %q", self)
	}
	r := &reaper{children: map[int]chan struct{}{}, childless: make(chan struct{}, 1)}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		for range died {
			if !r.reap() {
				continue
			}
			select {
			case r.childless <- struct{}{}:
			default: // there is something already
			}
		}
	}()
	return r, nil
}

// Start implements call.Reaper. No child can be reaped before it is known here.
func (r *reaper) Start(fork func() (int, error)) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	r.children[pid] = gone
	return gone, nil
}

// reap collects who has ended, and reports whether there is no child left at all.
func (r *reaper) reap() (none bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		case !ws.Exited() && !ws.Signaled():
		default:
			r.account(pid, ws)
		}
	}
}

func (r *reaper) account(pid int, ws unix.WaitStatus) {
	if gone, ours := r.children[pid]; ours {
		delete(r.children, pid)
		close(gone)
	} else if ws.Signaled() && ws.Signal() == unix.SIGKILL {
		r.killed++
	}
}

// sweep ends every other process of the container and returns, once none is left, how
// many processes of calls it ended. The caller keeps new ones from being started. A
// process that cannot die yet delays the answer; nothing makes it come early.
func (r *reaper) sweep() (int, error) {
	r.mu.Lock()
	before := r.killed
	r.mu.Unlock()
	for {
		// The kernel lets no process that this reaches complete a fork.
		_ = unix.Kill(-1, unix.SIGKILL)
		for !r.reap() {
			_ = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		}
		left, err := others()
		if err != nil {
			return 0, err
		}
		if len(left) == 0 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.killed - before, nil
		}
		time.Sleep(time.Millisecond) // a process that was put into the container from outside has another parent
	}
}

// ask tells every other process of the container to end by itself, and returns how many
// of calls there were. Those that watch over calls do not heed it.
func (r *reaper) ask() (int, error) {
	all, err := others()
	if err != nil {
		return 0, err
	}
	_ = unix.Kill(-1, unix.SIGTERM)
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(slices.DeleteFunc(all, func(pid int) bool { _, ours := r.children[pid]; return ours })), nil
}

// alone reports whether there is no other process in the container.
func (r *reaper) alone() (bool, error) {
	left, err := others()
	return err == nil && len(left) == 0, err
}

// others lists the processes of the container beside this one.
func others() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
