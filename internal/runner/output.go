// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// outlet accounts for the output of one call: nothing is read from the call that
// could not be sent, so that memory stays bounded and a flood blocks its writer.
type outlet struct {
	mu     sync.Mutex
	cond   *sync.Cond
	credit int64
	limit  int64 // of what is sent in all
	sent   int64
	full   bool // there was more than the limit
	cut    bool // nothing more is sent
	closed chan struct{}
}

func newOutlet(limit int64) *outlet {
	o := &outlet{credit: wire.InitialCredit, limit: limit, closed: make(chan struct{})}
	o.cond = sync.NewCond(&o.mu)
	return o
}

// give adds credit.
func (o *outlet) give(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.credit += n
	o.cond.Broadcast()
}

// close ends the output and returns how many bytes were, or are being, sent.
func (o *outlet) close() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.cut {
		o.cut = true
		close(o.closed)
		o.cond.Broadcast()
	}
	return o.sent
}

// reserve waits for credit and returns how many of n bytes may be read; 0 at the end.
// One byte beyond the limit may be read, to see that it is there.
func (o *outlet) reserve(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.credit <= 0 && !o.cut {
		o.cond.Wait()
	}
	if o.cut {
		return 0
	}
	return int(min(int64(n), o.credit, o.limit-o.sent+1))
}

// commit takes n read bytes on and returns how many of them to send.
func (o *outlet) commit(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut {
		return 0
	}
	if room := o.limit - o.sent; int64(n) > room {
		o.full = true
		n = int(room)
	}
	o.credit -= int64(n)
	o.sent += int64(n)
	return n
}

func (o *outlet) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.full
}

// pump sends what a call writes until its end, or until the outlet is closed or full.
// To say that the call has ended, its deadline for reading is set: what it left in the
// pipe is sent then, and no more, whoever else may have got hold of the other end.
func pump(f *os.File, o *outlet, send func([]byte) error) {
	buf := make([]byte, wire.MaxChunk)
	forward := func(n int) bool {
		take := o.commit(n)
		return (take == 0 || send(buf[:take]) == nil) && take == n
	}
	for {
		n := o.reserve(len(buf))
		if n == 0 {
			return
		}
		n, err := f.Read(buf[:n])
		if n > 0 && !forward(n) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	for left := pending(f); left > 0; {
		n := o.reserve(min(left, len(buf)))
		if n == 0 {
			return
		}
		n = readNow(f, buf[:n])
		if n <= 0 || !forward(n) {
			return
		}
		left -= n
	}
}

// pending is how many bytes are in the pipe.
func pending(f *os.File) (n int) {
	onDescriptor(f, func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	return n
}

func readNow(f *os.File, b []byte) (n int) {
	onDescriptor(f, func(fd int) { n, _ = unix.Read(fd, b) })
	return n
}

func onDescriptor(f *os.File, do func(fd int)) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}
