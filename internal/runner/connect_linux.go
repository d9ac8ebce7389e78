// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// connections are the two to the agent: what is said on one never waits for the other.
type connections struct {
	control, data *peer
	welcome       *wire.Welcome
}

func (c *connections) close() {
	_ = c.control.conn.Close()
	_ = c.data.conn.Close()
	c.control.sent.drop()
	c.data.sent.drop()
}

// peer is one connection; frames are written whole, by one writer at a time.
type peer struct {
	conn *net.UnixConn
	in   *bufio.Reader
	sent passed // descriptors that came beside the frames
	mu   sync.Mutex
}

// controlTimeout bounds how long the agent may leave a control frame unread.
const controlTimeout = 10 * time.Second

// send writes a frame; without a time-out it waits until the agent reads.
func (p *peer) send(f wire.Frame, timeout time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timeout > 0 {
		if err := p.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
	}
	return wire.WriteFrame(p.conn, f)
}

// connect introduces the supervisor: hello with the lock's descriptor, welcome, and
// the data connection with the token that welcome brought.
func connect(ctx context.Context, socket string, h wire.Hello, lock *os.File) (_ *connections, err error) {
	control, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, control.conn.Close())
		}
	}()
	// Whatever blocks below ends with the context.
	defer context.AfterFunc(ctx, func() { _ = control.conn.SetDeadline(time.Unix(1, 0)) })()
	hello, err := wire.EncodeFrame(wire.Frame{Hello: &h})
	if err != nil {
		return nil, err
	}
	n, _, err := control.conn.WriteMsgUnix(hello, unix.UnixRights(int(lock.Fd())), nil)
	if err != nil || n != len(hello) {
		return nil, fmt.Errorf("sending hello: %d of %d bytes: %w", n, len(hello), err)
	}
	f, err := wire.ReadFrame(control.in)
	if err != nil {
		return nil, fmt.Errorf("waiting for welcome: %w", err)
	}
	if f.Welcome == nil || f.Welcome.Wire != wire.Version {
		return nil, fmt.Errorf("the agent did not answer with a welcome of version %d", wire.Version)
	}
	data, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	if err := data.send(wire.Frame{Attach: &wire.Attach{Token: f.Welcome.Token}}, controlTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("attaching the data connection: %w", err), data.conn.Close())
	}
	if err := data.conn.SetWriteDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, data.conn.Close())
	}
	return &connections{control, data, f.Welcome}, nil
}

func dial(ctx context.Context, socket string) (*peer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	u := c.(*net.UnixConn)
	p := &peer{conn: u, sent: passed{conn: u}}
	p.in = bufio.NewReader(&p.sent)
	return p, nil
}
