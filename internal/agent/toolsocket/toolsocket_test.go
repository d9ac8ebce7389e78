// SPDX-License-Identifier: Apache-2.0

package toolsocket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*toolsocket.Server
	dir     string
	changed chan struct{}
}

// start listens for the two containers and runs a supervisor for each that is given.
func start(t *testing.T, supervisors ...*supervisortest.Supervisor) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), changed: make(chan struct{}, 1)}
	names := []string{wire.ToolsRO, wire.ToolsRW}
	for _, n := range names {
		if err := os.Mkdir(filepath.Join(w.dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.Server, err = toolsocket.Listen(toolsocket.Options{
		Dir: w.dir, Containers: names, Epoch: wire.Epoch{Boot: 2}, Log: slog.New(slog.DiscardHandler),
		Changed: func() {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for _, s := range supervisors {
		w.run(t, s)
	}
	return w
}

// run starts a supervisor and returns how to kill it.
func (w *world) run(t *testing.T, s *supervisortest.Supervisor) (kill func()) {
	t.Helper()
	s.Dir = filepath.Join(w.dir, s.Container)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	kill = func() {
		cancel()
		<-done
	}
	t.Cleanup(cancel)
	return kill
}

// await waits until a condition holds; the test's own deadline bounds it.
func (w *world) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-w.changed:
		case <-t.Context().Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func (w *world) connected(name string) bool {
	for _, c := range w.Containers() {
		if c.Name == name {
			return c.Connected
		}
	}
	return false
}

func (w *world) awaitBoth(t *testing.T) {
	t.Helper()
	w.await(t, "both are connected", func() bool { return w.connected(wire.ToolsRO) && w.connected(wire.ToolsRW) })
}

func rw() policy.Profile { return policy.Profile{Mode: policy.WorkspaceWrite} }

func both(call func(context.Context, wire.Start, func([]byte)) wire.Exited) (ro, rw *supervisortest.Supervisor) {
	return &supervisortest.Supervisor{Container: wire.ToolsRO, Call: call}, &supervisortest.Supervisor{Container: wire.ToolsRW, Call: call}
}

// Output of any length comes through, is counted whole, and is kept at its two ends.
func TestOutputIsKeptAtItsEnds(t *testing.T) {
	const total = 3 << 20
	ro, rwS := both(func(_ context.Context, _ wire.Start, write func([]byte)) wire.Exited {
		write([]byte("begin"))
		write(bytes.Repeat([]byte("x"), total-8))
		write([]byte("end"))
		return wire.Exited{Cause: wire.Finished, Status: 3}
	})
	w := start(t, ro, rwS)
	w.awaitBoth(t)
	w.Widen(wire.Epoch{Boot: 2, Counter: 1}, rw())
	call, err := w.Start(wire.ToolsRW, wire.Start{Call: "1.1.1", Epoch: wire.Epoch{Boot: 2, Counter: 1}, Profile: rw()}, toolsocket.NewClip(1000))
	if err != nil {
		t.Fatal(err)
	}
	exited, out, err := call.Wait(t.Context())
	if err != nil || exited.Status != 3 || exited.Cause != wire.Finished {
		t.Fatalf("Wait() = %+v, %v", exited, err)
	}
	if !bytes.HasPrefix(out.Head, []byte("beginx")) || !bytes.HasSuffix(out.Tail, []byte("xend")) {
		t.Errorf("kept %.10q … %q", out.Head, out.Tail[len(out.Tail)-10:])
	}
	if want := int64(total - 1000); out.Omitted != want {
		t.Errorf("omitted %d bytes, want %d", out.Omitted, want)
	}
}

// A call during which the container's memory was used up is counted for that container, and told.
func TestCallsOutOfMemoryAreCounted(t *testing.T) {
	ro, rwS := both(func(context.Context, wire.Start, func([]byte)) wire.Exited {
		return wire.Exited{Cause: wire.Finished, Signal: "SIGKILL", OutOfMemory: true}
	})
	w := start(t, ro, rwS)
	w.awaitBoth(t)
	w.Widen(wire.Epoch{Boot: 2, Counter: 1}, rw())
	for i := range 2 {
		call, err := w.Start(wire.ToolsRW, wire.Start{Call: fmt.Sprintf("1.1.%d", i), Epoch: wire.Epoch{Boot: 2, Counter: 1}, Profile: rw()}, toolsocket.NewClip(1000))
		if err != nil {
			t.Fatal(err)
		}
		if exited, _, err := call.Wait(t.Context()); err != nil || !exited.OutOfMemory {
			t.Fatalf("Wait() = %+v, %v", exited, err)
		}
		w.await(t, "it is counted", func() bool { c := w.Containers(); return c[0].OutOfMemory == 0 && c[1].OutOfMemory == i+1 })
	}
}

// A narrowing is confirmed only by both containers, and ends what runs in them.
func TestNarrowingWaitsForBoth(t *testing.T) {
	release := make(chan struct{})
	ro, rwS := both(func(ctx context.Context, _ wire.Start, _ func([]byte)) wire.Exited {
		<-ctx.Done()
		return wire.Exited{}
	})
	rwS.BeforeNarrowed = func(wire.Narrow) { <-release }
	if names, _ := start(t).Unconfirmed(wire.Epoch{}); len(names) != 2 {
		t.Errorf("unconfirmed: %v, want both, which were never there", names)
	}
	w := start(t, ro, rwS)
	w.awaitBoth(t)
	first, second := wire.Epoch{Boot: 2, Counter: 1}, wire.Epoch{Boot: 2, Counter: 2}
	w.Widen(first, rw())
	call, err := w.Start(wire.ToolsRW, wire.Start{Call: "1.1.1", Epoch: first, Profile: rw()}, toolsocket.NewClip(100))
	if err != nil {
		t.Fatal(err)
	}
	w.Narrow(second, policy.Profile{}, 0)
	if exited, _, err := call.Wait(t.Context()); err != nil || exited.Cause != wire.Narrowing {
		t.Errorf("the call ended with %+v, %v; want %s", exited, err, wire.Narrowing)
	}
	w.await(t, "tools-ro confirms", func() bool { names, _ := w.Unconfirmed(second); return len(names) == 1 })
	if names, _ := w.Unconfirmed(second); names[0] != wire.ToolsRW {
		t.Errorf("unconfirmed: %v, want %s alone", names, wire.ToolsRW)
	}
	close(release)
	w.await(t, "tools-rw confirms", func() bool { names, _ := w.Unconfirmed(second); return len(names) == 0 })
	if _, killed := w.Unconfirmed(second); killed != 1 {
		t.Errorf("killed %d, want the call's one", killed)
	}
}

// A container that loses its connection while it narrows is confirmed by its next hello,
// and its calls end without anybody having seen their end.
func TestALostConnectionConfirmsByHello(t *testing.T) {
	ro, rwS := both(func(ctx context.Context, _ wire.Start, _ func([]byte)) wire.Exited {
		<-ctx.Done()
		return wire.Exited{}
	})
	hang := make(chan struct{})
	rwS.BeforeNarrowed = func(wire.Narrow) { <-hang }
	w := start(t, ro, rwS)
	w.awaitBoth(t)
	first, second := wire.Epoch{Boot: 2, Counter: 1}, wire.Epoch{Boot: 2, Counter: 2}
	w.Widen(first, rw())
	call, err := w.Start(wire.ToolsRW, wire.Start{Call: "1.1.1", Epoch: first, Profile: rw()}, toolsocket.NewClip(100))
	if err != nil {
		t.Fatal(err)
	}
	rwS.Hangup()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, _, err := call.Wait(ctx); !errors.Is(err, toolsocket.ErrLost) {
		t.Errorf("Wait() = %v, want %v", err, toolsocket.ErrLost)
	}
	w.awaitBoth(t)
	w.Narrow(second, policy.Profile{}, 0)
	w.await(t, "tools-ro confirms", func() bool { names, _ := w.Unconfirmed(second); return len(names) == 1 })
	w.Drop(second)
	close(hang)
	w.await(t, "the next hello confirms", func() bool { names, _ := w.Unconfirmed(second); return len(names) == 0 })
}

// Nobody but the holder of the lock passes for the supervisor, and trying does not keep the
// real one out.
func TestImpostorsAreRefused(t *testing.T) {
	w := start(t)
	dir := filepath.Join(w.dir, wire.ToolsRW)
	hello := wire.Hello{Wire: wire.Version, Container: wire.ToolsRW, Boot: "x", Enforcement: wire.Enforcement{Level: wire.LevelFull}}
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	lock := open(filepath.Join(dir, wire.LockName))
	refused := func(name string, f *os.File) {
		t.Helper()
		c, err := supervisortest.Dial(dir, hello, f)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if f, err := wire.ReadFrame(c); err == nil {
			t.Errorf("%s was answered %+v", name, f)
		}
	}
	refused("nobody holds the lock", lock)
	refused("no descriptor", nil)
	refused("another file", open(os.Args[0]))

	var silent []net.Conn // more than may stand at the door, saying nothing
	for range 200 {
		c, err := net.Dial("unix", filepath.Join(dir, wire.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	rwS := &supervisortest.Supervisor{Container: wire.ToolsRW}
	kill := w.run(t, rwS)
	w.await(t, "the real one is connected", func() bool { return w.connected(wire.ToolsRW) })
	refused("its own descriptor while the supervisor holds the lock", lock)
	if !w.connected(wire.ToolsRW) {
		t.Error("the impostor displaced the supervisor")
	}
	if c, err := net.Dial("unix", filepath.Join(dir, wire.SocketName)); err != nil {
		t.Error(err)
	} else {
		_ = wire.WriteFrame(c, wire.Frame{Attach: &wire.Attach{Token: ""}})
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("attaching without a token: %v", err)
		}
		_ = c.Close()
	}

	// The agent keeps no duplicate of the lock: the next supervisor can take it.
	kill()
	w.await(t, "it is gone", func() bool { return !w.connected(wire.ToolsRW) })
	w.run(t, &supervisortest.Supervisor{Container: wire.ToolsRW})
	w.await(t, "its successor is connected", func() bool { return w.connected(wire.ToolsRW) })
	_ = silent
}
