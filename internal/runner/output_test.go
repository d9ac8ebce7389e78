// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/wire"
)

func TestReserveGivesNoMoreThanThereIsCredit(t *testing.T) {
	o := newOutlet(1 << 30)
	if got := o.reserve(wire.MaxChunk); got != wire.MaxChunk {
		t.Errorf("reserve() = %d with the whole credit", got)
	}
	if got := o.commit(wire.InitialCredit - 10); got != wire.InitialCredit-10 {
		t.Errorf("commit() = %d", got)
	}
	if got := o.reserve(wire.MaxChunk); got != 10 {
		t.Errorf("reserve() = %d with a credit of 10", got)
	}
	o.commit(10)
	got := make(chan int)
	go func() { got <- o.reserve(wire.MaxChunk) }()
	o.give(7)
	if n := <-got; n != 7 {
		t.Errorf("reserve() = %d after a credit of 7", n)
	}
}

func TestACloseFreesWhoeverWaitsForCredit(t *testing.T) {
	o := newOutlet(1 << 30)
	o.commit(wire.InitialCredit)
	got := make(chan int)
	go func() { got <- o.reserve(1) }()
	if sent := o.close(); sent != wire.InitialCredit {
		t.Errorf("close() = %d", sent)
	}
	if n := <-got; n != 0 {
		t.Errorf("reserve() = %d after the close", n)
	}
	if n := o.commit(5); n != 0 {
		t.Errorf("commit() = %d after the close", n)
	}
}

func TestTheLimitCutsInTheMiddle(t *testing.T) {
	o := newOutlet(10)
	if n := o.reserve(100); n != 11 {
		t.Errorf("reserve() = %d, want one more than the limit", n)
	}
	if n := o.commit(11); n != 10 || !o.isFull() {
		t.Errorf("commit() = %d, full %v", n, o.isFull())
	}
}

func TestExactlyTheLimitIsNotTooMuch(t *testing.T) {
	o := newOutlet(10)
	if n := o.commit(10); n != 10 || o.isFull() {
		t.Errorf("commit() = %d, full %v", n, o.isFull())
	}
}

func nonblockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// The other end of the pipe may be in strange hands: what is in it at the end counts.
func TestTheEndOfACallIsNotTheEndOfItsPipe(t *testing.T) {
	r, w := nonblockingPipe(t)
	if _, err := w.WriteString("left in the pipe"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	pump(r, newOutlet(1<<20), func(b []byte) error { got.Write(b); return nil })
	if got.String() != "left in the pipe" {
		t.Errorf("sent %q", got.String())
	}
}

func TestThePumpStopsWhenNobodyTakesItsOutput(t *testing.T) {
	r, w := nonblockingPipe(t)
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	pump(r, newOutlet(1<<20), func([]byte) error { return errors.New("gone") })
	if n := pending(r); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
