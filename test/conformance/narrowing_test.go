// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestAfterNarrowedNotAByteIsWritten(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	sizes := map[string]int64{}
	for i := range 100 {
		prof := []policy.Profile{workspace, danger}[i%2]
		name := fmt.Sprintf("written-%d", i)
		writer := start(t, l, prof, fmt.Sprintf(`trap '' TERM; while :; do echo x >> %s; sleep 0.02; done`, name))
		storm := start(t, l, prof, `while :; do (setsid sh -c 'sleep 5' &) ; done`)
		awaitFile(t, p.Path("workspace", name))
		n, err := l.Narrow(readOnly)
		if err != nil {
			t.Fatal(err)
		}
		sizes[name] = sizeOf(t, p.Path("workspace", name))
		wantEmpty(t, c)
		if n.Killed == 0 {
			t.Errorf("narrowed says that %d processes were ended", n.Killed)
		}
		wantExitedBeforeNarrowed(t, l, n.Epoch, writer, storm)
		if err := l.Widen(danger); err != nil {
			t.Fatal(err)
		}
	}
	for name, size := range sizes {
		if now := sizeOf(t, p.Path("workspace", name)); now != size {
			t.Errorf("%s had %d bytes when narrowed came and has %d", name, size, now)
		}
	}
}

func wantExitedBeforeNarrowed(t *testing.T, l *runnertest.Link, e wire.Epoch, calls ...string) {
	t.Helper()
	exited := map[string]bool{}
	for _, f := range l.Frames() {
		if f.Exited != nil && f.Exited.Cause == wire.Narrowing {
			exited[f.Exited.Call] = true
		}
		if f.Narrowed != nil && f.Narrowed.Epoch == e {
			break
		}
	}
	for _, c := range calls {
		if !exited[c] {
			t.Errorf("narrowed came before the end of %s was told", c)
		}
	}
}

// A start that races with a narrowing runs wholly before it or not at all.
func TestAStartThatRacesWithANarrowing(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	for i := range 30 {
		st, err := l.Order(workspace, wire.Workspace, "bash", fmt.Sprintf(`{"command":"while :; do echo x >> race-%d; done"}`, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(wire.Frame{Start: st}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 300 * time.Microsecond) // another point of its way each time
		if _, err := l.Narrow(readOnly); err != nil {
			t.Fatal(err)
		}
		wantEmpty(t, c)
		if r := wait(t, l, st.Call); r.Cause != wire.Narrowing {
			t.Fatalf("the call ended as %+v", r.Exited)
		}
		if err := l.Widen(workspace); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNarrowingDoesNotWaitForOutput(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	l.Starve("call-1")
	id := start(t, l, workspace, "yes")
	eventually(t, "the credit is used up", func() bool { return len(l.Output(id)) == wire.InitialCredit })
	if _, err := l.Narrow(readOnly); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, c)
	if r := wait(t, l, id); r.Cause != wire.Narrowing || r.OutputBytes != wire.InitialCredit {
		t.Errorf("exited = %+v", r.Exited)
	}
}

// Nor for an agent that does not read what it gave credit for.
func TestNarrowingDoesNotWaitForAReader(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	hear := l.Deafen()
	id := start(t, l, workspace, "yes | tee big")
	awaitFile(t, p.Path("workspace/big"))
	// The pipe, the socket and the credit fill up, and then the writer stands still.
	before := int64(-1)
	eventually(t, "the command is blocked", func() bool {
		size := sizeOf(t, p.Path("workspace/big"))
		same := size == before && size > 64<<10
		before = size
		time.Sleep(50 * time.Millisecond)
		return same
	})
	if _, err := l.Narrow(readOnly); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, c)
	hear()
	if r := wait(t, l, id); r.Cause != wire.Narrowing || int64(len(r.Output)) != r.OutputBytes {
		t.Errorf("exited = %+v with %d bytes", r.Exited, len(r.Output))
	}
}
