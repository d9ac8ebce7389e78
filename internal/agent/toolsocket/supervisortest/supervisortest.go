// SPDX-License-Identifier: Apache-2.0

// Package supervisortest is a supervisor for tests: it speaks the real protocol over real
// sockets and locks, and runs functions instead of processes. It can be slow and
// it can die, at moments that a test chooses.
package supervisortest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Supervisor is one tools container. Set the fields before Run.
type Supervisor struct {
	Dir       string // the container's control directory
	Container string
	Level     wire.Level
	// Call does what a call does, until ctx ends; nil finishes at once with status 0.
	Call func(ctx context.Context, start wire.Start, write func([]byte)) wire.Exited
	// Terminal does what a call does whose input and output are the far end of a terminal; nil
	// finishes at once with status 0.
	Terminal func(ctx context.Context, start wire.Start, far *os.File) wire.Exited
	// BeforeNarrowed is called when everything has ended and before that is said.
	BeforeNarrowed func(wire.Narrow)

	mu      sync.Mutex
	control *net.UnixConn
	starts  []wire.Start
	widest  policy.Profile
}

// Starts returns the calls that were started so far.
func (s *Supervisor) Starts() []wire.Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]wire.Start{}, s.starts...)
}

// Widest is the widest bound that was ordered so far, part by part.
func (s *Supervisor) Widest() policy.Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.widest
}

// Hangup ends the connection; Run dials again.
func (s *Supervisor) Hangup() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control != nil {
		_ = s.control.Close()
	}
}

// Terminate says that the container is ending.
func (s *Supervisor) Terminate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.WriteFrame(s.control, wire.Frame{Terminating: &wire.Terminating{}})
}

// Run is the life of the supervisor, until ctx ends. The lock is released then.
func (s *Supervisor) Run(ctx context.Context) error {
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	for ctx.Err() == nil {
		if err := s.session(ctx, lock); err != nil && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

func (s *Supervisor) lock(ctx context.Context) (*os.File, error) {
	for ctx.Err() == nil {
		f, err := os.Open(filepath.Join(s.Dir, wire.LockName))
		if errors.Is(err, os.ErrNotExist) {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if err != nil {
			return nil, err
		}
		for ctx.Err() == nil {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
				return f, nil
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = f.Close()
	}
	return nil, ctx.Err()
}

// Dial connects to a control directory and says hello, passing a descriptor of lock.
func Dial(dir string, hello wire.Hello, lock *os.File) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, wire.SocketName), Net: "unix"})
	if err != nil {
		return nil, err
	}
	frame, err := wire.EncodeFrame(wire.Frame{Hello: &hello})
	if err != nil {
		return nil, err
	}
	var rights []byte
	if lock != nil {
		rights = unix.UnixRights(int(lock.Fd()))
	}
	if _, _, err := c.WriteMsgUnix(frame, rights, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// dial keeps the connection for Hangup before the agent can call it connected.
func (s *Supervisor) dial(hello wire.Hello, lock *os.File) (c *net.UnixConn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err = Dial(s.Dir, hello, lock); err == nil {
		s.control = c
	}
	return c, err
}

// session is one connection. Everything that it started has ended when it returns.
func (s *Supervisor) session(ctx context.Context, lock *os.File) error {
	level := s.Level
	if level == "" {
		level = wire.LevelFull
	}
	hello := wire.Hello{Wire: wire.Version, Container: s.Container, Boot: rand.Text(), Enforcement: wire.Enforcement{Level: level, LandlockABI: 7}}
	control, err := s.dial(hello, lock)
	if err != nil {
		return err
	}
	defer control.Close()
	defer context.AfterFunc(ctx, func() { _ = control.Close() })()
	first, err := wire.ReadFrame(control)
	if err != nil || first.Welcome == nil {
		return fmt.Errorf("no welcome: %w", err)
	}
	data, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(s.Dir, wire.SocketName), Net: "unix"})
	if err != nil {
		return err
	}
	defer data.Close()
	if err := wire.WriteFrame(data, wire.Frame{Attach: &wire.Attach{Token: first.Welcome.Token}}); err != nil {
		return err
	}
	r := &running{s: s, control: control, data: data, epoch: first.Welcome.Epoch, bound: first.Welcome.Bound, calls: map[string]*runningCall{}}
	defer r.end(wire.Finished)
	var credits sync.WaitGroup
	defer credits.Wait()
	defer data.Close()
	credits.Go(r.readCredit)
	in := &receiver{conn: control}
	defer in.drop()
	for {
		f, err := wire.ReadFrame(in)
		if err != nil {
			return err
		}
		r.take(ctx, f, in)
	}
}

type running struct {
	s             *Supervisor
	control, data *net.UnixConn

	mu    sync.Mutex
	epoch wire.Epoch
	bound policy.Profile
	calls map[string]*runningCall
	wg    sync.WaitGroup
}

type runningCall struct {
	cancel context.CancelFunc
	cause  wire.Cause
	credit chan int64
}

func (r *running) take(ctx context.Context, f wire.Frame, in *receiver) {
	switch {
	case f.Start != nil:
		r.start(ctx, *f.Start, in.next(f.Start.Tool))
	case f.Stop != nil:
		r.mu.Lock()
		if c := r.calls[f.Stop.Call]; c != nil {
			c.cause = wire.Cancelled
			c.cancel()
		}
		r.mu.Unlock()
	case f.Narrow != nil:
		killed := r.end(wire.Narrowing)
		if r.s.BeforeNarrowed != nil {
			r.s.BeforeNarrowed(*f.Narrow)
		}
		r.epoch, r.bound = f.Narrow.Epoch, f.Narrow.Bound
		r.say(wire.Frame{Narrowed: &wire.Narrowed{Epoch: f.Narrow.Epoch, Killed: killed}})
	case f.Widen != nil:
		r.epoch, r.bound = f.Widen.Epoch, f.Widen.Bound
		r.s.mu.Lock()
		r.s.widest.Mode, r.s.widest.Network = max(r.s.widest.Mode, r.bound.Mode), max(r.s.widest.Network, r.bound.Network)
		r.s.mu.Unlock()
	}
}

func (r *running) say(f wire.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = wire.WriteFrame(r.control, f)
}

func (r *running) start(ctx context.Context, start wire.Start, far *os.File) {
	bound := r.bound
	if start.Granted {
		bound.Mode = max(bound.Mode, start.Profile.Mode)
	}
	if start.Epoch != r.epoch || !start.Profile.Within(bound) {
		if far != nil {
			_ = far.Close()
		}
		r.say(wire.Frame{Exited: &wire.Exited{Call: start.Call, Cause: wire.Refused, Detail: "stale epoch or wider than the bound"}})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &runningCall{cancel: cancel, credit: make(chan int64, 1024)}
	r.mu.Lock()
	r.calls[start.Call] = c
	r.mu.Unlock()
	r.s.mu.Lock()
	r.s.starts = append(r.s.starts, start)
	r.s.mu.Unlock()
	r.say(wire.Frame{Started: &wire.Started{Call: start.Call}})
	r.wg.Go(func() { r.run(ctx, start, c, far) })
}

func (r *running) run(ctx context.Context, start wire.Start, c *runningCall, far *os.File) {
	defer c.cancel()
	credit, sent := int64(wire.InitialCredit), int64(0)
	write := func(p []byte) {
		for len(p) > 0 {
			for credit <= 0 {
				select {
				case n := <-c.credit:
					credit += n
				case <-ctx.Done():
					return
				}
			}
			n := min(len(p), wire.MaxChunk, int(credit))
			if wire.WriteFrame(r.data, wire.Frame{Output: &wire.Output{Call: start.Call, Data: p[:n]}}) != nil {
				return
			}
			credit, sent, p = credit-int64(n), sent+int64(n), p[n:]
		}
	}
	exited := wire.Exited{Cause: wire.Finished}
	switch {
	case far != nil:
		if r.s.Terminal != nil {
			exited = r.s.Terminal(ctx, start, far)
		}
		_ = far.Close()
	case r.s.Call != nil:
		exited = r.s.Call(ctx, start, write)
	}
	r.mu.Lock()
	if c.cause != "" {
		exited.Cause = c.cause
	}
	delete(r.calls, start.Call)
	r.mu.Unlock()
	exited.Call, exited.OutputBytes = start.Call, max(sent, exited.OutputBytes) // more than was sent makes the agent wait for it
	r.say(wire.Frame{Exited: &exited})
}

// end ends every call, waits for them and counts them.
func (r *running) end(cause wire.Cause) int {
	r.mu.Lock()
	n := len(r.calls)
	for _, c := range r.calls {
		c.cause = cause
		c.cancel()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return n
}

func (r *running) readCredit() {
	for {
		f, err := wire.ReadFrame(r.data)
		if err != nil {
			return
		}
		if f.Credit == nil {
			continue
		}
		r.mu.Lock()
		if c := r.calls[f.Credit.Call]; c != nil {
			c.credit <- f.Credit.Bytes
		}
		r.mu.Unlock()
	}
}
