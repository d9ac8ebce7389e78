// SPDX-License-Identifier: Apache-2.0

package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for the children of this process.
type Reaper interface {
	// Start runs fork, which returns a child, and gives a channel that is closed when
	// that child has been reaped.
	Start(fork func() (pid int, err error)) (<-chan struct{}, error)
}

// Running is a call on its way. Its methods are called in the order Ready, Release,
// Started, Wait; Kill at any time.
type Running struct {
	Output *os.File // what the call writes, standard output and error in one; non-blocking

	gone    <-chan struct{} // init was reaped
	order   *os.File
	report  *os.File
	control *os.File
	end     *os.File
}

// ErrLost means that the process that watched over a call ended without a report:
// something of the call may be left.
var ErrLost = errors.New("the process that watched over the call was ended")

// Launch starts the stages. The call itself waits for Release.
func Launch(r Reaper, o Order) (*Running, error) {
	b, err := encodeOrder(o)
	if err != nil {
		return nil, err
	}
	var ps pipes
	defer ps.closeTheirs()
	output, order, report := ps.toUs(), ps.toThem(), ps.toUs()
	control, end := ps.toThem(), ps.toUs()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, ps.err); err != nil {
		ps.closeOurs()
		return nil, fmt.Errorf("making pipes: %w", err)
	}
	defer unix.Close(null)
	t := ps.theirs
	gone, err := r.Start(func() (int, error) {
		return syscall.ForkExec(self, []string{"toolbox", "init"}, &syscall.ProcAttr{
			Env: []string{},
			// Output twice; then in the order of the descriptors' numbers.
			Files: []uintptr{uintptr(null), t[0], t[0], t[1], t[2], t[3], t[4]},
		})
	})
	if err != nil {
		ps.closeOurs()
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	c := &Running{Output: output, gone: gone, order: order, report: report, control: control, end: end}
	go func() {
		_, _ = c.order.Write(b) // if nobody reads it, Ready says so
	}()
	return c, nil
}

// Ready waits until every restriction is in force and tested. An error says what was
// wrong; then nothing of the call has run or will.
func (c *Running) Ready() error {
	var b [1]byte
	if _, err := c.report.Read(b[:]); err != nil {
		return errors.New("the sandbox was not put up: its process ended early")
	}
	if b[0] != readyMark {
		return fmt.Errorf("the sandbox was not put up: %s", c.reason())
	}
	return nil
}

// Release lets the call run. It does not wait: Started does.
func (c *Running) Release() error {
	if _, err := c.order.Write([]byte{goMark}); err != nil {
		return fmt.Errorf("letting the call run: %w", err)
	}
	return nil
}

// Started waits until the released call runs. An error says why it does not.
func (c *Running) Started() error {
	var b [1]byte
	switch _, err := c.report.Read(b[:]); {
	case errors.Is(err, io.EOF): // closed by exec
		return nil
	case err != nil:
		return fmt.Errorf("letting the call run: %w", err)
	default:
		return errors.New(c.reason())
	}
}

func (c *Running) reason() string {
	b, err := io.ReadAll(io.LimitReader(c.report, 4<<10))
	if len(b) == 0 {
		return fmt.Sprintf("no reason was given (%v)", err)
	}
	return string(b)
}

// Kill ends the call and all that it started. Wait tells when that is so.
func (c *Running) Kill() { _ = c.control.Close() }

// Gone is closed when the process that watches over the call has been reaped.
func (c *Running) Gone() <-chan struct{} { return c.gone }

// Wait waits for the end of the call.
func (c *Running) Wait() (End, error) {
	b, err := io.ReadAll(io.LimitReader(c.end, 64<<10))
	<-c.gone
	var e End
	if err != nil || json.Unmarshal(b, &e) != nil {
		return End{}, ErrLost
	}
	if e.Failed != "" {
		return End{}, fmt.Errorf("%w: %s", ErrLost, e.Failed)
	}
	return e, nil
}

// Close frees the descriptors, Output's included.
func (c *Running) Close() {
	for _, f := range []*os.File{c.Output, c.order, c.report, c.control, c.end} {
		_ = f.Close()
	}
}

// pipes makes pipes whose near ends belong to this program's poller and whose far
// ends block, as a command expects.
type pipes struct {
	ours   []*os.File
	theirs []uintptr
	err    error
}

func (p *pipes) toUs() *os.File   { return p.make(0) }
func (p *pipes) toThem() *os.File { return p.make(1) }

func (p *pipes) make(near int) *os.File {
	var fds [2]int
	err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fds[near], true)
	}
	if err != nil {
		p.err = errors.Join(p.err, err)
		return nil
	}
	f := os.NewFile(uintptr(fds[near]), "pipe")
	p.ours = append(p.ours, f)
	p.theirs = append(p.theirs, uintptr(fds[1-near]))
	return f
}

func (p *pipes) closeTheirs() {
	for _, fd := range p.theirs {
		_ = unix.Close(int(fd))
	}
}

func (p *pipes) closeOurs() {
	for _, f := range p.ours {
		_ = f.Close()
	}
}
