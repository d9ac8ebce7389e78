// SPDX-License-Identifier: Apache-2.0

package linkserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/doorway"
)

// guarded is a listener whose connections have all shown the operator's certificate.
type guarded struct {
	net.Listener
	ctx   context.Context
	id    *Identity
	ready chan net.Conn
	done  chan struct{} // closed when nothing is accepted any more
	once  sync.Once
	err   error
	wg    sync.WaitGroup
}

func guard(ctx context.Context, l net.Listener, id *Identity) *guarded {
	g := &guarded{Listener: l, ctx: ctx, id: id, ready: make(chan net.Conn), done: make(chan struct{})}
	g.wg.Go(g.run)
	return g
}

// Accept implements net.Listener.
func (g *guarded) Accept() (net.Conn, error) {
	select {
	case c := <-g.ready:
		return c, nil
	case <-g.done:
		return nil, g.err
	}
}

// Close implements net.Listener.
func (g *guarded) Close() error {
	g.end(net.ErrClosed)
	return g.Listener.Close()
}

func (g *guarded) end(err error) {
	g.once.Do(func() {
		g.err = err
		close(g.done)
	})
}

func (g *guarded) wait() {
	_ = g.Close()
	g.wg.Wait()
}

func (g *guarded) run() {
	door := doorway.New(atTheDoor)
	for {
		c, err := g.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			g.end(err)
			return
		}
		if err != nil {
			select {
			case <-time.After(time.Second): // out of descriptors, most likely
				continue
			case <-g.done:
				return
			}
		}
		leave, err := door.Enter(g.ctx, func() { _ = c.Close() })
		if err != nil {
			_ = c.Close()
			return
		}
		g.wg.Go(func() { g.prove(c, leave) })
	}
}

// prove does the handshake, within a bound, and hands the connection over.
func (g *guarded) prove(raw net.Conn, leave func()) {
	ctx, cancel := context.WithTimeout(g.ctx, proofTimeout)
	defer cancel()
	c := tls.Server(raw, g.id.tls)
	err := c.HandshakeContext(ctx)
	leave()
	if err != nil {
		_ = raw.Close()
		return
	}
	select {
	case g.ready <- c:
	case <-g.done:
		_ = raw.Close()
	}
}
