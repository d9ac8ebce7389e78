// SPDX-License-Identifier: Apache-2.0

package toolsocket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/wire"
)

const kept = 4 << 10

// open opens a terminal in which a function runs.
func open(t *testing.T, run func(ctx context.Context, far *os.File)) *toolsocket.Terminal {
	t.Helper()
	w := start(t, &supervisortest.Supervisor{Container: wire.ToolsRW, Terminal: func(ctx context.Context, _ wire.Start, far *os.File) wire.Exited {
		run(ctx, far)
		return wire.Exited{Cause: wire.Finished, Status: 5}
	}})
	w.await(t, "the supervisor is there", func() bool { return w.Containers()[1].Connected })
	ended := make(chan struct{})
	term, err := w.StartTerminal(wire.ToolsRW, wire.Start{Call: "c", Epoch: wire.Epoch{Boot: 2}, Tool: "terminal"}, 24, 80, kept, func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		term.Stop()
		<-ended
	})
	<-term.Started()
	return term
}

// However much is written, the newest part waits, in bounded memory, and what is lost is counted.
func TestATerminalKeepsTheNewest(t *testing.T) {
	const lines = 10000
	term := open(t, func(_ context.Context, far *os.File) {
		b := bufio.NewWriter(far)
		for i := range lines {
			fmt.Fprintf(b, "line %05d\n", i)
		}
		_ = b.Flush()
	})
	if err := term.AwaitEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := term.Take()
	if total := o.Omitted + int64(len(o.Tail)); len(o.Tail) != kept || total != lines*int64(len("line 00000\r\n")) {
		t.Errorf("%d bytes are kept and %d dropped", len(o.Tail), o.Omitted)
	}
	if !strings.HasSuffix(string(o.Tail), "line 09999\r\n") {
		t.Errorf("the end is %q", o.Tail[len(o.Tail)-30:])
	}
	if over, e, err := term.Over(); !over || e.Status != 5 || err != nil {
		t.Errorf("Over() = %v, %+v, %v", over, e, err)
	}
	if o := term.Take(); len(o.Tail) != 0 || o.Omitted != 0 {
		t.Errorf("what was taken comes again: %+v", o)
	}
}

// Typing never waits for ever, and says how much the terminal took.
func TestTypingToWhoDoesNotRead(t *testing.T) {
	term := open(t, func(ctx context.Context, _ *os.File) { <-ctx.Done() })
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 20000)
	n, err := term.Type(text)
	if err != nil || n == 0 || n == len(text) {
		t.Errorf("Type() = %d of %d, %v", n, len(text), err)
	}
	if _, err := term.Type(strings.Repeat("x", 5000) + "\n"); !errors.Is(err, toolsocket.ErrLineTooLong) {
		t.Errorf("a line that the kernel would cut: %v", err)
	}
	if err := term.Resize(10, 20); err != nil {
		t.Error(err)
	}
	// The echo is output too: it ends the wait, as nothing follows it.
	term.AwaitOutput(t.Context(), 24*time.Hour, 10*time.Millisecond)
	if o := term.Take(); len(o.Tail) == 0 {
		t.Error("what is typed is not echoed")
	}
}
