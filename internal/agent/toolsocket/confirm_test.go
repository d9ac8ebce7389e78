// SPDX-License-Identifier: Apache-2.0

package toolsocket_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A supervisor confirms what was ordered and nothing that is still to come, and what it says late undoes nothing.
func TestConfirmationsOutOfOrder(t *testing.T) {
	w := start(t)
	dir := filepath.Join(w.dir, wire.ToolsRW)
	lock, err := os.Open(filepath.Join(dir, wire.LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	c, err := supervisortest.Dial(dir, wire.Hello{Wire: wire.Version, Container: wire.ToolsRW, Boot: "x", Enforcement: wire.Enforcement{Level: wire.LevelFull}}, lock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if f, err := wire.ReadFrame(c); err != nil || f.Welcome == nil {
		t.Fatalf("no welcome: %+v, %v", f, err)
	}
	epoch := func(n uint64) wire.Epoch { return wire.Epoch{Boot: 2, Counter: n} }
	confirm := func(n uint64) {
		t.Helper()
		if err := wire.WriteFrame(c, wire.Frame{Narrowed: &wire.Narrowed{Epoch: epoch(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	confirmed := func(n uint64) bool {
		names, _ := w.Unconfirmed(epoch(n))
		return !slices.Contains(names, wire.ToolsRW)
	}
	confirm(9) // nobody has ordered it yet
	w.Narrow(epoch(1), policy.Profile{}, 0)
	confirm(1)
	w.await(t, "the first narrowing is confirmed", func() bool { return confirmed(1) })
	w.Narrow(epoch(2), policy.Profile{}, 0)
	if confirmed(2) {
		t.Error("a narrowing is confirmed before the supervisor has heard of it")
	}
	confirm(2)
	confirm(1)
	if err := wire.WriteFrame(c, wire.Frame{Terminating: &wire.Terminating{}}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "all of it was read", func() bool { return !w.connected(wire.ToolsRW) })
	if !confirmed(2) {
		t.Error("what was confirmed is not any more")
	}
}

// A container that is about to end takes no call.
func TestAContainerThatEndsTakesNoCall(t *testing.T) {
	ro, rwS := both(nil)
	w := start(t, ro, rwS)
	w.awaitBoth(t)
	if err := rwS.Terminate(); err != nil {
		t.Fatal(err)
	}
	w.await(t, "it is ending", func() bool { return !w.connected(wire.ToolsRW) })
	if _, err := w.Start(wire.ToolsRW, wire.Start{Call: "1.1.1", Profile: rw()}, toolsocket.NewClip(100)); !errors.Is(err, toolsocket.ErrNotConnected) {
		t.Errorf("Start() = %v, want %v", err, toolsocket.ErrNotConnected)
	}
}
