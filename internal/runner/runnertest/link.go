// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Link is one accepted supervisor.
type Link struct {
	Hello wire.Hello

	control, data *net.UnixConn
	write         sync.Mutex
	terminals     map[string]*Terminal // under mu, by call
	deaf          sync.RWMutex         // held while no terminal is read
	reading       sync.Mutex           // held while the data connection is read

	mu      sync.Mutex
	changed *sync.Cond
	epoch   wire.Epoch
	frames  []wire.Frame // from the control connection, in order
	output  map[string][]byte
	bytes   map[string]int64
	noMore  map[string]bool // calls that get no credit
	closed  error
	calls   int
}

// keepOutput is how much of a call's output is kept; the rest is counted.
const keepOutput = 4 << 20

func newLink(h wire.Hello, e wire.Epoch, control, data *net.UnixConn) *Link {
	l := &Link{Hello: h, control: control, data: data, epoch: e,
		output: map[string][]byte{}, bytes: map[string]int64{}, noMore: map[string]bool{}, terminals: map[string]*Terminal{}}
	l.changed = sync.NewCond(&l.mu)
	go l.readControl()
	go l.readData()
	return l
}

// Close ends both connections, as the death of the agent would.
func (l *Link) Close() {
	_ = l.control.Close()
	_ = l.data.Close()
}

func (l *Link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = fmt.Errorf("the connection ended: %w", err)
	}
	l.changed.Broadcast()
}

func (l *Link) readControl() {
	for {
		f, err := wire.ReadFrame(l.control)
		if err != nil {
			l.end(err)
			return
		}
		l.mu.Lock()
		l.frames = append(l.frames, f)
		l.changed.Broadcast()
		l.mu.Unlock()
	}
}

func (l *Link) readData() {
	for {
		l.reading.Lock()
		f, err := wire.ReadFrame(l.data)
		l.reading.Unlock()
		if err != nil || f.Output == nil {
			l.end(err)
			return
		}
		id, n := f.Output.Call, int64(len(f.Output.Data))
		l.mu.Lock()
		if len(l.output[id]) < keepOutput {
			l.output[id] = append(l.output[id], f.Output.Data...)
		}
		l.bytes[id] += n
		credit := !l.noMore[id]
		l.changed.Broadcast()
		l.mu.Unlock()
		if credit {
			_ = wire.WriteFrame(l.data, wire.Frame{Credit: &wire.Credit{Call: id, Bytes: n}})
		}
	}
}

// Send writes a control frame.
func (l *Link) Send(f wire.Frame) error {
	l.write.Lock()
	defer l.write.Unlock()
	return wire.WriteFrame(l.control, f)
}

// Await waits until a frame satisfies the condition. It returns it and its place.
func (l *Link) Await(timeout time.Duration, want func(wire.Frame) bool) (wire.Frame, int, error) {
	stop := time.AfterFunc(timeout, l.changed.Broadcast)
	defer stop.Stop()
	deadline := time.Now().Add(timeout)
	l.mu.Lock()
	defer l.mu.Unlock()
	for seen := 0; ; {
		for ; seen < len(l.frames); seen++ {
			if want(l.frames[seen]) {
				return l.frames[seen], seen, nil
			}
		}
		if l.closed != nil {
			return wire.Frame{}, 0, l.closed
		}
		if !time.Now().Before(deadline) {
			return wire.Frame{}, 0, fmt.Errorf("no such frame within %v", timeout)
		}
		l.changed.Wait()
	}
}

// AwaitEnd waits until the supervisor has ended the connection.
func (l *Link) AwaitEnd(timeout time.Duration) error {
	_, _, err := l.Await(timeout, func(wire.Frame) bool { return false })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil
	}
	return err
}

// Frames returns the control frames so far.
func (l *Link) Frames() []wire.Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.frames)
}

// Forget drops the frames and the output so far: a test of many calls needs them no more.
func (l *Link) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = nil
	clear(l.output)
	clear(l.bytes)
}

// Starve makes the agent read the output of a call without giving credit for more.
func (l *Link) Starve(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noMore[id] = true
}

// Deafen keeps the agent from reading any output until the returned function is called.
// One frame may still be read.
func (l *Link) Deafen() (hear func()) {
	locked := make(chan struct{})
	go func() {
		l.reading.Lock()
		close(locked)
	}()
	return func() {
		<-locked
		l.reading.Unlock()
	}
}

// Output returns what a call has written so far.
func (l *Link) Output(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.output[id])
}

// Order makes the start frame of a call under the current epoch.
func (l *Link) Order(p policy.Profile, workspace, name, arguments string) (*wire.Start, error) {
	c, err := tool.Decode(name, []byte(arguments))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return &wire.Start{
		Call: fmt.Sprintf("call-%d", l.calls), Epoch: l.epoch, Profile: p, Tool: name,
		Arguments: string(c.Canonical), Digest: c.Digest, Workspace: workspace,
	}, nil
}

// Result is a finished call.
type Result struct {
	wire.Exited
	Output string
}

// Start orders a call and waits until it runs, or has ended without.
func (l *Link) Start(st *wire.Start) error {
	if err := l.order(st); err != nil {
		return err
	}
	_, _, err := l.Await(time.Minute, func(f wire.Frame) bool {
		return f.Started != nil && f.Started.Call == st.Call || f.Exited != nil && f.Exited.Call == st.Call
	})
	return err
}

// Wait waits for the end of a call and all its output.
func (l *Link) Wait(id string) (Result, error) {
	f, _, err := l.Await(2*time.Minute, func(f wire.Frame) bool { return f.Exited != nil && f.Exited.Call == id })
	if err != nil {
		return Result{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes[id] < f.Exited.OutputBytes {
		if l.closed != nil {
			return Result{}, l.closed
		}
		l.changed.Wait()
	}
	if t := l.terminals[id]; t != nil {
		delete(l.terminals, id)
		return Result{*f.Exited, t.end()}, nil
	}
	return Result{*f.Exited, string(l.output[id])}, nil
}

// Call runs one call to its end.
func (l *Link) Call(p policy.Profile, workspace, name, arguments string) (Result, error) {
	st, err := l.Order(p, workspace, name, arguments)
	if err != nil {
		return Result{}, err
	}
	if err := l.Start(st); err != nil {
		return Result{}, err
	}
	return l.Wait(st.Call)
}

func (l *Link) nextEpoch() wire.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch.Counter++
	return l.epoch
}

// Narrow narrows and waits for the answer.
func (l *Link) Narrow(bound policy.Profile) (wire.Narrowed, error) {
	e, err := l.OrderNarrow(bound, 0)
	if err != nil {
		return wire.Narrowed{}, err
	}
	return l.AwaitNarrowed(e)
}

// OrderNarrow narrows with so many seconds of grace. It does not wait for the answer.
func (l *Link) OrderNarrow(bound policy.Profile, grace int64) (wire.Epoch, error) {
	e := l.nextEpoch()
	return e, l.Send(wire.Frame{Narrow: &wire.Narrow{Epoch: e, Bound: bound, Grace: grace}})
}

// AwaitNarrowed waits until a narrowing is answered.
func (l *Link) AwaitNarrowed(e wire.Epoch) (wire.Narrowed, error) {
	f, _, err := l.Await(wire.MaxGraceSeconds*time.Second/2, func(f wire.Frame) bool { return f.Narrowed != nil && f.Narrowed.Epoch == e })
	if err != nil {
		return wire.Narrowed{}, err
	}
	return *f.Narrowed, nil
}

// Widen raises the bound.
func (l *Link) Widen(bound policy.Profile) error {
	return l.Send(wire.Frame{Widen: &wire.Widen{Epoch: l.nextEpoch(), Bound: bound}})
}
