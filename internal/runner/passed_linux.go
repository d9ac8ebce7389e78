// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// maxPassed is how many descriptors may wait for the frame that they came with.
const maxPassed = 8

// passed reads a connection and keeps the descriptors that come beside its bytes. The
// kernel gives a descriptor no later than the first byte that it was sent with, so
// they wait in the order of their frames.
type passed struct {
	conn *net.UnixConn

	mu     sync.Mutex
	fds    []int
	closed bool
}

// Read implements io.Reader.
func (p *passed) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxPassed))
	n, oobn, flags, _, err := p.conn.ReadMsgUnix(b, oob) // close-on-exec
	if keepErr := p.keep(oob[:oobn]); keepErr != nil {
		return 0, keepErr
	}
	switch {
	case err != nil:
		return max(n, 0), err // of an error it says -1, which no reader may
	case flags&unix.MSG_CTRUNC != 0:
		return 0, errors.New("too many descriptors came at once")
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (p *passed) keep(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		p.fds = append(p.fds, fds...)
	}
	if p.closed {
		p.dropLocked()
	}
	if len(p.fds) > maxPassed {
		return errors.New("too many descriptors wait for their frames")
	}
	return nil
}

// next is the descriptor that came first, and the caller's from now on.
func (p *passed) next() (fd int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fds) == 0 {
		return -1, false
	}
	fd, p.fds = p.fds[0], p.fds[1:]
	return fd, true
}

// drop closes what nobody has taken, and whatever still comes.
func (p *passed) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.dropLocked()
}

func (p *passed) dropLocked() {
	for _, fd := range p.fds {
		_ = unix.Close(fd)
	}
	p.fds = nil
}
