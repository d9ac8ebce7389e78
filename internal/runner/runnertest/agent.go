// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Agent is the agent's half of one container's control socket.
type Agent struct {
	dir      string
	listener *net.UnixListener
}

// NewAgent creates the lock, unless it is there, and then listens.
func NewAgent(ctlDir string) (*Agent, error) {
	lock, err := os.OpenFile(filepath.Join(ctlDir, wire.LockName), os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, err
	}
	if err := lock.Close(); err != nil {
		return nil, err
	}
	path := filepath.Join(ctlDir, wire.SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return &Agent{ctlDir, l}, errors.Join(os.Chmod(path, 0o666))
}

// Close stops listening, as the death of the agent would.
func (a *Agent) Close() { _ = a.listener.Close() }

// ErrImpostor is what Accept says of a peer without the lock.
var ErrImpostor = errors.New("the peer does not hold the lock")

// Accept takes the next peer, demands the proof, and welcomes it.
func (a *Agent) Accept(epoch wire.Epoch, bound policy.Profile, timeout time.Duration) (*Link, error) {
	deadline := time.Now().Add(timeout)
	if err := a.listener.SetDeadline(deadline); err != nil {
		return nil, err
	}
	control, err := a.listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	hello, err := a.hello(control, deadline)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	const token = "the-token-of-this-test"
	if err := wire.WriteFrame(control, wire.Frame{Welcome: &wire.Welcome{Wire: wire.Version, Token: token, Epoch: epoch, Bound: bound}}); err != nil {
		return nil, err
	}
	data, err := a.listener.AcceptUnix()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	f, err := wire.ReadFrame(data)
	if err != nil || f.Attach == nil || f.Attach.Token != token {
		return nil, errors.Join(fmt.Errorf("no attach with the token: %+v", f), err, control.Close(), data.Close())
	}
	return newLink(*hello, epoch, control, data), nil
}

// hello reads the first frame and the lock that travels beside it.
func (a *Agent) hello(c *net.UnixConn, deadline time.Time) (*wire.Hello, error) {
	if err := c.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	fds, err := rights(oob[:oobn])
	defer closeAll(fds)
	if err != nil || len(fds) != 1 || !a.proves(fds[0]) {
		return nil, errors.Join(ErrImpostor, err)
	}
	f, err := wire.ReadFrame(io.MultiReader(bytes.NewReader(buf[:n]), c))
	if err != nil {
		return nil, err
	}
	if f.Hello == nil {
		return nil, errors.New("the first frame is no hello")
	}
	return f.Hello, c.SetReadDeadline(time.Time{})
}

func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		got, e := unix.ParseUnixRights(&m)
		fds, err = append(fds, got...), errors.Join(err, e)
	}
	return fds, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// proves reports whether a descriptor is the held lock: a fresh open cannot lock, the
// passed one can, and both are the same file.
func (a *Agent) proves(passed int) bool {
	fresh, err := os.Open(filepath.Join(a.dir, wire.LockName))
	if err != nil {
		return false
	}
	defer fresh.Close()
	var x, y unix.Stat_t
	if unix.Fstat(passed, &x) != nil || unix.Fstat(int(fresh.Fd()), &y) != nil || x.Ino != y.Ino || x.Dev != y.Dev {
		return false
	}
	return unix.Flock(int(fresh.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK &&
		unix.Flock(passed, unix.LOCK_EX|unix.LOCK_NB) == nil
}
