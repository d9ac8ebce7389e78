// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// NARROWINGS in the environment sets how often TestAfterNarrowedNotAByteIsWritten narrows.
func narrowings(t *testing.T) int {
	t.Helper()
	text := os.Getenv("NARROWINGS")
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("NARROWINGS must be a number above 0, not %q", text)
	}
	return n
}

// writers write to the file that the shell variable f names, each in another way that
// could outlive a call: a shell that ignores signals, a daemon, a descriptor that was
// opened before, a mapping.
var writers = []string{
	`trap '' TERM; while :; do echo x >> $f; sleep 0.02; done`,
	`(setsid sh -c 'trap "" TERM HUP; while :; do echo x >> '$f'; done' </dev/null >/dev/null 2>&1 &) ; sleep 1000`,
	`exec 9>>$f; while :; do echo x >&9; done`,
	`exec python3 -c "
import mmap, os, sys
f = open('$f', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); os.close(os.dup(f.fileno())); n = 0
while True:
    n = (n + 1) % 251; m[7:8] = bytes([n]); f.seek(0, 2); f.write(b'x'); f.flush()"`,
}

// Under load of every kind: after narrowed, nothing of an earlier time lives or writes.
// What is kept open by a mapping is told by content, not by size.
func TestAfterNarrowedNotAByteIsWritten(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	states := map[string]string{}
	var took []time.Duration
	rounds, early := narrowings(t), int64(0)
	for i := range rounds {
		prof := []policy.Profile{workspace, danger}[i%2]
		name := fmt.Sprintf("written-%d", i)
		writer := start(t, l, prof, fmt.Sprintf("f=%s\n%s", name, writers[i%len(writers)]))
		storm := start(t, l, prof, `while :; do (setsid sh -c 'sleep 5' &) ; done`)
		typed := name + "-in-a-terminal"
		term, _ := openTerminal(t, l, prof, fmt.Sprintf("f=%s\n%s", typed, writers[(i+i/len(writers))%len(writers)]))
		shell, near := openTerminal(t, l, prof, "") // which is typed into until it is no more
		go func() {
			for near.Type("echo x >> "+typed+"-by-hand\n") == nil {
				time.Sleep(time.Millisecond)
			}
		}()
		files := []string{name, typed, typed + "-by-hand"}
		for _, f := range files {
			awaitFile(t, p.Path("workspace", f))
		}
		begun := time.Now()
		n, err := l.Narrow(readOnly)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		for _, f := range files {
			states[f] = contentOf(t, p.Path("workspace", f))
		}
		wantEmpty(t, c)
		if n.Killed == 0 {
			t.Errorf("narrowed says that %d processes were ended", n.Killed)
		}
		wantExitedBeforeNarrowed(t, l, n.Epoch, writer, storm, term, shell)
		for _, id := range []string{term, shell} {
			wait(t, l, id)
		}
		l.Forget()
		if err := l.Widen(danger); err != nil {
			t.Fatal(err)
		}
		if i == rounds/10 {
			early = memoryOf(t, c)
		}
	}
	for name, state := range states {
		if now := contentOf(t, p.Path("workspace", name)); now != state {
			t.Errorf("%s is not what it was when narrowed came", name)
		}
	}
	late := memoryOf(t, c)
	slices.Sort(took)
	t.Logf("%d narrowings: median %v, 9 of 10 within %v, 99 of 100 within %v, the longest %v; the supervisor had %d KiB early and %d KiB at the end",
		rounds, took[rounds/2], took[rounds*9/10], took[rounds*99/100], took[rounds-1], early, late)
	if late > early+8<<10 {
		t.Errorf("the supervisor grew from %d KiB to %d KiB", early, late)
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
}

// memoryOf is the resident memory of a container's supervisor in KiB.
func memoryOf(t *testing.T, c *runnertest.Container) int64 {
	t.Helper()
	kib, err := c.Memory()
	if err != nil {
		t.Fatal(err)
	}
	return kib
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
