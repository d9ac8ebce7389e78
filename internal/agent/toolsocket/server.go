// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/doorway"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	proofTimeout = 2 * time.Second
	atTheDoor    = 64 // connections of a container that have proved nothing yet
)

// ErrNotConnected says that a container has no supervisor to start a call.
var ErrNotConnected = errors.New("the tools container is not connected")

// Options of a server.
type Options struct {
	Dir        string   // has one directory a container
	Containers []string // names
	Epoch      wire.Epoch
	// Changed is called, without a lock held, whenever a container came, went or confirmed.
	Changed func()
	Log     *slog.Logger
}

// Server holds the control sockets of all tools containers. Narrow, Widen and Start
// only queue; frames reach each supervisor in the order of these calls.
type Server struct {
	o      Options
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	epoch      wire.Epoch
	bound      policy.Profile
	containers []*container
}

type container struct {
	name     string
	dir      string
	listener *net.UnixListener

	// Guarded by Server.mu.
	link        *link
	token       string // for the data connection; "" once used
	terminating bool
	report      wire.Enforcement
	confirmed   wire.Epoch // nothing of an earlier epoch lives
	hello       bool       // it has been connected since this server began
	killed      int        // processes, by the newest narrowing
	outOfMemory int        // calls during which its memory was used up
}

// Listen makes the sockets. The bound is the narrowest profile until Narrow or Widen move it.
func Listen(o Options) (*Server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{o: o, cancel: cancel, epoch: o.Epoch}
	for _, name := range o.Containers {
		dir := filepath.Join(o.Dir, name)
		l, err := listen(dir)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("control socket of %s: %w", name, err)
		}
		s.containers = append(s.containers, &container{name: name, dir: dir, listener: l})
	}
	for _, c := range s.containers {
		s.wg.Go(func() { s.accept(ctx, c) })
	}
	return s, nil
}

// Close ends every connection, and with them, in the containers, everything that runs.
func (s *Server) Close() {
	s.cancel()
	s.mu.Lock()
	for _, c := range s.containers {
		_ = c.listener.Close()
		if c.link != nil {
			c.link.close()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Server) accept(ctx context.Context, c *container) {
	door := doorway.New(atTheDoor)
	for {
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.o.Log.Error("Cannot accept a supervisor", "container", c.name, "error", err)
			select {
			case <-time.After(time.Second): // out of descriptors, most likely
				continue
			case <-ctx.Done():
				return
			}
		}
		leave, err := door.Enter(ctx, func() { _ = conn.Close() })
		if err != nil {
			_ = conn.Close()
			return
		}
		s.wg.Go(func() { s.serve(ctx, c, conn, leave) })
	}
}

// serve finds out what a connection is, and runs it if it is a supervisor's.
func (s *Server) serve(ctx context.Context, c *container, conn *net.UnixConn, leave func()) {
	defer conn.Close()
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	run, err := s.admit(c, conn)
	leave()
	if err != nil {
		s.o.Log.Debug("Refused a control connection", "container", c.name, "reason", err.Error())
		return
	}
	run()
}

func (s *Server) admit(c *container, conn *net.UnixConn) (run func(), err error) {
	if err := conn.SetDeadline(time.Now().Add(proofTimeout)); err != nil {
		return nil, err
	}
	first, fd, err := readFirst(conn)
	defer func() { closeFD(fd) }()
	if err != nil {
		return nil, err
	}
	if first.Attach != nil {
		return s.admitData(c, conn, first.Attach.Token)
	}
	if first.Hello == nil {
		return nil, errors.New("the first frame is neither hello nor attach")
	}
	if err := prove(filepath.Join(c.dir, wire.LockName), fd); err != nil {
		return nil, fmt.Errorf("not the supervisor: %w", err)
	}
	closeFD(fd)
	fd = -1
	h := *first.Hello
	if h.Wire != wire.Version || h.Container != c.name {
		s.o.Log.Error("Refused the supervisor: agent and toolbox are not of one release, or volumes are mixed up",
			"container", c.name, "says", h.Container, "wire", h.Wire, "want", wire.Version)
		return nil, errors.New("another wire version or container")
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return func() { s.supervise(c, conn, h) }, nil
}

func (s *Server) admitData(c *container, conn *net.UnixConn, token string) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.link == nil || c.token == "" || c.token != token {
		return nil, errors.New("the token is not known")
	}
	c.token = ""
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	l := c.link
	if err := l.attach(conn); err != nil {
		return nil, err
	}
	return func() { l.readData(conn) }, nil
}

// supervise runs the control connection of a proven supervisor. Its container is empty
// now: a supervisor says hello only then, and starts nothing before welcome.
func (s *Server) supervise(c *container, conn *net.UnixConn, h wire.Hello) {
	l := newLink(conn)
	s.mu.Lock()
	if c.link != nil {
		c.link.close() // of a supervisor that no longer holds the lock
	}
	c.link, c.token, c.terminating, c.report, c.hello = l, rand.Text(), false, h.Enforcement, true
	c.confirmed, c.killed = s.epoch, 0
	l.send(wire.Frame{Welcome: &wire.Welcome{Wire: wire.Version, Token: c.token, Epoch: s.epoch, Bound: s.bound}})
	s.mu.Unlock()
	s.wg.Go(l.writeControl)
	s.o.Log.Info("A supervisor is connected", "container", c.name, "enforcement", h.Enforcement.Level)
	s.changed()

	err := l.readControl(func(f wire.Frame) error { return s.take(c, l, f) })
	s.mu.Lock()
	if c.link == l {
		c.link = nil
	}
	s.mu.Unlock()
	l.lose()
	s.o.Log.Info("A supervisor is gone", "container", c.name, "reason", fmt.Sprint(err))
	s.changed()
}

// take handles one frame of a supervisor. One that is not understood ends the connection.
func (s *Server) take(c *container, l *link, f wire.Frame) error {
	switch {
	case f.Started != nil:
		l.started(*f.Started)
		return nil
	case f.Exited != nil:
		if f.Exited.OutOfMemory {
			s.mu.Lock()
			c.outOfMemory++
			s.mu.Unlock()
			defer s.changed()
		}
		l.exited(*f.Exited)
		return nil
	case f.Narrowed != nil:
		s.narrowed(c, l, *f.Narrowed)
	case f.Terminating != nil:
		s.mu.Lock()
		c.terminating = true
		s.mu.Unlock()
	default:
		name, _ := f.Member()
		return fmt.Errorf("a supervisor does not send %s", name)
	}
	s.changed()
	return nil
}

func (s *Server) narrowed(c *container, l *link, n wire.Narrowed) {
	// Nothing of an earlier epoch lives, whether or not its end was told.
	l.endEarlier(n.Epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.link == l && c.confirmed.Before(n.Epoch) && !s.epoch.Before(n.Epoch) {
		c.confirmed, c.killed = n.Epoch, max(0, n.Killed)
	}
}

func (s *Server) changed() {
	if s.o.Changed != nil {
		s.o.Changed()
	}
}
