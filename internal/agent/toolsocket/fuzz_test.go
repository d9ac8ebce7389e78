// SPDX-License-Identifier: Apache-2.0

package toolsocket_test

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Whatever comes on a control socket, from nobody in particular or from a supervisor that
// has proved itself: the agent goes on, the connection ends with its peer's, and nothing
// is confirmed that was not asked for.
func FuzzPeer(f *testing.F) {
	for _, frame := range []wire.Frame{
		{Hello: &wire.Hello{Wire: wire.Version, Container: wire.ToolsRW}}, {Attach: &wire.Attach{Token: "t"}}, {Started: &wire.Started{Call: "c"}},
		{Exited: &wire.Exited{Call: "c", Cause: wire.Finished, OutputBytes: -1}}, {Narrowed: &wire.Narrowed{Epoch: wire.Epoch{Boot: 9}, Killed: -1}},
		{Terminating: &wire.Terminating{}}, {Output: &wire.Output{Call: "c", Data: []byte("x")}},
	} {
		b, err := wire.EncodeFrame(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b, false)
		f.Add(append(b, b...), true)
	}
	dir, s, lock := listenForFuzz(f)
	beyond := wire.Epoch{Boot: 2, Counter: 1}
	f.Fuzz(func(t *testing.T, in []byte, proven bool) {
		var c *net.UnixConn
		var err error
		if proven {
			c, err = supervisortest.Dial(filepath.Join(dir, wire.ToolsRW), wire.Hello{Wire: wire.Version, Container: wire.ToolsRW}, lock)
		} else {
			c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, wire.ToolsRW, wire.SocketName), Net: "unix"})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(in) // it may end the connection before it has read all
		_ = c.CloseWrite()
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			t.Fatal("the connection does not end with its peer's")
		}
		if names, killed := s.Unconfirmed(beyond); !slices.Contains(names, wire.ToolsRW) || killed != 0 {
			t.Fatalf("an epoch that nobody has begun is confirmed: all but %v, %d killed", names, killed)
		}
	})
}

// listenForFuzz holds the lock that the supervisor of tools-rw would hold.
func listenForFuzz(f *testing.F) (dir string, s *toolsocket.Server, lock *os.File) {
	f.Helper()
	dir = f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, wire.ToolsRW), 0o755); err != nil {
		f.Fatal(err)
	}
	s, err := toolsocket.Listen(toolsocket.Options{
		Dir: dir, Containers: []string{wire.ToolsRW}, Epoch: wire.Epoch{Boot: 2}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	s.Widen(wire.Epoch{Boot: 2}, policy.Profile{Mode: policy.WorkspaceWrite})
	if lock, err = os.Open(filepath.Join(dir, wire.ToolsRW, wire.LockName)); err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = lock.Close() })
	return dir, s, lock
}
