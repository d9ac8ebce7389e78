// SPDX-License-Identifier: Apache-2.0

package call

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for the children of this process.
type Reaper interface {
	// Start runs fork, which returns a child, and gives a channel that is closed when
	// that child has been reaped.
	Start(fork func() (pid int, err error)) (<-chan struct{}, error)
}

// Pool starts calls, and keeps inits whose call is over for the next.
type Pool struct {
	reaper Reaper

	mu    sync.Mutex
	idle  []*initProcess
	times int // how often the pool was emptied
}

// maxIdle is how many inits wait for a call.
const maxIdle = 4

// NewPool makes a pool of children of this process.
func NewPool(r Reaper) *Pool { return &Pool{reaper: r} }

// LaunchIn lets a command run in a terminal, whose descriptor stays the caller's. It does
// not wait: Begin does.
func (p *Pool) LaunchIn(o Order, terminal int) (*Running, error) {
	b, err := encodeOrder(o)
	if err != nil {
		return nil, err
	}
	i, times, err := p.take()
	if err != nil {
		return nil, err
	}
	c := &Running{init: i, pool: p, times: times}
	c.order, c.failed = i.send(b, terminal)
	return c, nil
}

// Launch lets a call run in a process that watches over it. It does not wait: Begin does.
func (p *Pool) Launch(o Order) (*Running, error) {
	b, err := encodeOrder(o)
	if err != nil {
		return nil, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer unix.Close(fds[1])
	i, times, err := p.take()
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	c := &Running{Output: os.NewFile(uintptr(fds[0]), "output"), init: i, pool: p, times: times}
	c.order, c.failed = i.send(b, fds[1])
	return c, nil
}

// Empty lets go of the inits that wait. Who is still at work is not taken back.
func (p *Pool) Empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.idle {
		_ = i.conn.Close()
	}
	p.idle, p.times = nil, p.times+1
}

// take gives an init that waits, or starts one.
func (p *Pool) take() (*initProcess, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		i := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		select {
		case <-i.gone: // ended by somebody else, for want of memory perhaps
			_ = i.conn.Close()
		default:
			return i, p.times, nil
		}
	}
	i, err := startInit(p.reaper)
	return i, p.times, err
}

func (p *Pool) put(i *initProcess, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if times != p.times || len(p.idle) >= maxIdle {
		_ = i.conn.Close()
		return
	}
	p.idle = append(p.idle, i)
}

// initProcess is an init as its parent sees it.
type initProcess struct {
	conn *os.File // the near end of its socket pair, non-blocking
	in   *bufio.Reader
	gone <-chan struct{} // it was reaped
}

func startInit(r Reaper) (*initProcess, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket pair: %w", err)
	}
	defer unix.Close(pair[1])
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening /dev/null: %w", err), unix.Close(pair[0]))
	}
	defer unix.Close(null)
	gone, err := r.Start(func() (int, error) {
		n := uintptr(null)
		return syscall.ForkExec(self, []string{"toolbox", "init"}, &syscall.ProcAttr{
			Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{n, n, n, uintptr(pair[1])},
		})
	})
	if err == nil {
		err = unix.SetNonblock(pair[0], true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process: %w", err), unix.Close(pair[0]))
	}
	conn := os.NewFile(uintptr(pair[0]), "orders")
	return &initProcess{conn, bufio.NewReader(conn), gone}, nil
}

// send hands over an order and the descriptor for output. It does not wait for a
// reader: it returns what is left of the order.
func (i *initProcess) send(order []byte, output int) (rest []byte, err error) {
	raw, err := i.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	n := 0
	ctlErr := raw.Control(func(fd uintptr) {
		n, err = unix.SendmsgN(int(fd), order, unix.UnixRights(output), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	})
	return order[max(n, 0):], errors.Join(err, ctlErr)
}

// hear reads the next message.
func (i *initProcess) hear() (mark byte, text []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(i.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxMessage {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	text = make([]byte, n)
	_, err = io.ReadFull(i.in, text)
	return head[0], text, err
}

// maxMessage is the longest text that init says.
const maxMessage = 64 << 10

// ease tells init that its call is to end by itself. After that it takes no order.
func (i *initProcess) ease() {
	if raw, err := i.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_, _ = unix.SendmsgN(int(fd), []byte{easeMark}, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		})
	}
}

// halfClose tells init that no more orders come, while what it says is still heard.
func (i *initProcess) halfClose() {
	if raw, err := i.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}
