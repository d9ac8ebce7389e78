// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Narrow tells every container to end what it runs and to start nothing wider than
// bound. What runs has so many seconds of grace. Unconfirmed says who has not done so
// yet. A container without a connection confirms by its next hello.
func (s *Server) Narrow(epoch wire.Epoch, bound policy.Profile, grace int64) {
	s.order(epoch, bound, wire.Frame{Narrow: &wire.Narrow{Epoch: epoch, Bound: bound, Grace: grace}})
}

// Widen raises the bound of every container. Nothing is ended and nobody answers.
func (s *Server) Widen(epoch wire.Epoch, bound policy.Profile) {
	s.order(epoch, bound, wire.Frame{Widen: &wire.Widen{Epoch: epoch, Bound: bound}})
}

func (s *Server) order(epoch wire.Epoch, bound policy.Profile, f wire.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.bound = epoch, bound
	for _, c := range s.containers {
		if c.link != nil {
			c.link.send(f)
		}
	}
}

// Unconfirmed names the containers in which something of an epoch before the given one
// may still live, and counts the processes that the others ended for it. A
// container that has never been connected is unconfirmed.
func (s *Server) Unconfirmed(epoch wire.Epoch) (names []string, killed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if !c.hello || c.confirmed.Before(epoch) {
			names = append(names, c.name)
			continue
		}
		if c.confirmed == epoch {
			killed += c.killed
		}
	}
	return names, killed
}

// Overdue names the containers that have been connected and have not confirmed an epoch.
// One that has never been is not yet there; nothing was started in it.
func (s *Server) Overdue(epoch wire.Epoch) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.hello && c.confirmed.Before(epoch) {
			names = append(names, c.name)
		}
	}
	return names
}

// Drop ends the connections of containers that have not confirmed an epoch: a supervisor
// that sees its connection end empties its container before it comes back.
func (s *Server) Drop(epoch wire.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.link != nil && c.confirmed.Before(epoch) {
			s.o.Log.Error("A supervisor does not confirm a narrowing; dropping it", "container", c.name, "epoch", epoch.String())
			c.link.close()
		}
	}
}

// Start hands a call to a container and keeps at most keep bytes of its output.
// With ErrNotConnected nothing was sent.
func (s *Server) Start(container string, start wire.Start, keep *Clip) (*Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.linkLocked(container); l != nil {
		return l.start(start, keep, nil), nil
	}
	return nil, ErrNotConnected
}

// linkLocked is the connection of a container in which calls can start, or nil.
func (s *Server) linkLocked(container string) *link {
	for _, c := range s.containers {
		if c.name == container && c.link != nil && !c.terminating {
			return c.link
		}
	}
	return nil
}

// Containers says what is known of each container, in order.
func (s *Server) Containers() []wire.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []wire.Container
	for _, c := range s.containers {
		all = append(all, wire.Container{Name: c.name, Connected: c.link != nil && !c.terminating, Report: c.report, OutOfMemory: c.outOfMemory})
	}
	return all
}
