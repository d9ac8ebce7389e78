// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/pty"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Terminal is the near end of one that a call runs in.
type Terminal struct {
	near *os.File
	done chan struct{} // nobody has the far end any more

	mu   sync.Mutex
	text strings.Builder
}

// order sends a start, with the far end of a terminal beside it where the tool is one.
func (l *Link) order(st *wire.Start) error {
	if st.Tool != tool.TerminalName {
		return l.Send(wire.Frame{Start: st})
	}
	p, err := pty.Open(24, 80)
	if err != nil {
		return err
	}
	defer p.Far.Close()
	t := &Terminal{near: p.Near, done: make(chan struct{})}
	l.mu.Lock()
	l.terminals[st.Call] = t
	l.mu.Unlock()
	if err := l.SendWith(wire.Frame{Start: st}, int(p.Far.Fd())); err != nil {
		return err
	}
	go func() {
		l.deaf.RLock()
		defer l.deaf.RUnlock()
		t.read()
	}()
	return nil
}

// DeafenTerminals keeps the agent from reading any terminal that is opened from now on, until the
// returned function is called. It waits for the end of those that are open.
func (l *Link) DeafenTerminals() (hear func()) {
	l.deaf.Lock()
	return l.deaf.Unlock
}

// SendWith writes a control frame with descriptors beside it.
func (l *Link) SendWith(f wire.Frame, fds ...int) error {
	b, err := wire.EncodeFrame(f)
	if err != nil {
		return err
	}
	l.write.Lock()
	defer l.write.Unlock()
	n, _, err := l.control.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil {
		_, err = l.control.Write(b[n:])
	}
	return err
}

// Terminal is the near end of a call's terminal.
func (l *Link) Terminal(id string) *Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terminals[id]
}

func (t *Terminal) read() {
	defer close(t.done)
	b := make([]byte, 32<<10)
	for {
		n, err := t.near.Read(b)
		t.mu.Lock()
		if t.text.Len() < keepOutput {
			t.text.Write(b[:n])
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// end returns what was written, once nobody can write any more.
func (t *Terminal) end() string {
	select {
	case <-t.done:
	case <-time.After(time.Minute): // somebody has kept the far end
	}
	_ = t.near.Close()
	<-t.done
	return t.Text()
}

// Type types.
func (t *Terminal) Type(s string) error {
	if err := t.near.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err := t.near.WriteString(s)
	return err
}

// Text is what was written so far, with plain ends of lines.
func (t *Terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.text.String(), "\r\n", "\n")
}
