// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	writeTimeout = 5 * time.Second
	outboxFrames = 256
)

// link is one proven connection of a supervisor: control, and later data beside it.
type link struct {
	control *net.UnixConn
	outbox  chan parcel
	gone    chan struct{} // closed when the link is of no use any more
	once    sync.Once

	mu    sync.Mutex
	data  *net.UnixConn
	calls map[string]*Call
}

// parcel is a frame, and the file that travels beside it, if one does.
type parcel struct {
	frame wire.Frame
	file  *os.File
}

func newLink(control *net.UnixConn) *link {
	return &link{
		control: control, outbox: make(chan parcel, outboxFrames), gone: make(chan struct{}),
		calls: map[string]*Call{},
	}
}

// send queues a frame. Frames leave in the order of the calls of send; a peer that does
// not take them is given up.
func (l *link) send(f wire.Frame) { l.sendWith(f, nil) }

// sendWith also sends a file, which is the link's from now on.
func (l *link) sendWith(f wire.Frame, file *os.File) {
	select {
	case <-l.gone:
	case l.outbox <- parcel{f, file}:
		return
	default:
		l.close()
	}
	parcel{file: file}.drop()
}

func (p parcel) drop() {
	if p.file != nil {
		_ = p.file.Close()
	}
}

// close ends both connections. Whoever reads from them sees it and does the rest.
func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.control.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.data != nil {
			_ = l.data.Close()
		}
	})
}

func (l *link) writeControl() {
	defer l.dropQueued()
	defer l.close()
	for {
		select {
		case <-l.gone:
			return
		case p := <-l.outbox:
			err := p.write(l.control)
			p.drop()
			if err != nil {
				return
			}
		}
	}
}

func (l *link) dropQueued() {
	for {
		select {
		case p := <-l.outbox:
			p.drop()
		default:
			return
		}
	}
}

func (p parcel) write(c *net.UnixConn) error {
	if p.file == nil {
		return writeWithin(c, p.frame)
	}
	b, err := wire.EncodeFrame(p.frame)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	// Beside the frame's first byte; what does not fit into the socket at once follows.
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(p.file.Fd())), nil)
	if err != nil {
		return err
	}
	_, err = c.Write(b[n:])
	return err
}

func writeWithin(c *net.UnixConn, f wire.Frame) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return wire.WriteFrame(c, f)
}

// start registers a call and queues its frame, with a file beside it or nil.
func (l *link) start(s wire.Start, keep *Clip, file *os.File) *Call {
	c := newCall(s, keep, l)
	l.mu.Lock()
	l.calls[s.Call] = c
	l.mu.Unlock()
	l.sendWith(wire.Frame{Start: &s}, file)
	return c
}

func (l *link) started(s wire.Started) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.calls[s.Call]; c != nil {
		c.begun.Do(func() { close(c.started) })
	}
}

func (l *link) exited(e wire.Exited) {
	l.mu.Lock()
	c := l.calls[e.Call] // stays there for output that is still on its way
	l.mu.Unlock()
	if c != nil {
		c.end(e, nil)
	}
}

// lose ends every open call as lost: nobody will see its end.
func (l *link) lose() {
	for _, c := range l.take(func(*Call) bool { return true }) {
		c.end(wire.Exited{}, ErrLost)
	}
}

// endEarlier ends the calls of epochs before e as narrowed.
func (l *link) endEarlier(e wire.Epoch) {
	for _, c := range l.take(func(c *Call) bool { return c.epoch.Before(e) }) {
		c.end(wire.Exited{Call: c.ID, Cause: wire.Narrowing}, nil)
	}
}

// forget is called when nobody waits for the call's output any more.
func (l *link) forget(c *Call) { l.take(func(d *Call) bool { return c == d }) }

func (l *link) take(which func(*Call) bool) []*Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var taken []*Call
	for id, c := range l.calls {
		if which(c) {
			taken = append(taken, c)
			delete(l.calls, id)
		}
	}
	return taken
}

// attach makes c the data connection; there is one only.
func (l *link) attach(c *net.UnixConn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gone:
		return errors.New("the control connection has ended")
	default:
	}
	if l.data != nil {
		return errors.New("there is a data connection already")
	}
	l.data = c
	return nil
}

// readData takes output in and gives credit back, until the connection ends; with it ends the whole link.
func (l *link) readData(c *net.UnixConn) {
	defer l.close()
	for {
		f, err := wire.ReadFrame(c)
		if err != nil || f.Output == nil || len(f.Output.Data) > 2*wire.MaxChunk {
			return
		}
		l.mu.Lock()
		call := l.calls[f.Output.Call]
		l.mu.Unlock()
		if call == nil {
			continue // it has ended
		}
		credit := call.write(f.Output.Data)
		if credit == 0 {
			continue
		}
		if err := writeWithin(c, wire.Frame{Credit: &wire.Credit{Call: call.ID, Bytes: credit}}); err != nil {
			return
		}
	}
}

// readControl hands each frame to f until the connection ends or f objects.
func (l *link) readControl(f func(wire.Frame) error) error {
	defer l.close()
	for {
		frame, err := wire.ReadFrame(l.control)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(frame); err != nil {
			return err
		}
	}
}
