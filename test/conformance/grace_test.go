// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func orderNarrow(t *testing.T, l *runnertest.Link, grace int64) wire.Epoch {
	t.Helper()
	e, err := l.OrderNarrow(readOnly, grace)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func awaitNarrowed(t *testing.T, l *runnertest.Link, e wire.Epoch) wire.Narrowed {
	t.Helper()
	n, err := l.AwaitNarrowed(e) // for half of the longest grace, so that nobody waits for its end
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// isNarrowed reports whether a narrowing is answered already.
func isNarrowed(l *runnertest.Link, e wire.Epoch) bool {
	for _, f := range l.Frames() {
		if f.Narrowed != nil && f.Narrowed.Epoch == e {
			return true
		}
	}
	return false
}

// Every process of the call is asked, and what ends by itself has had its chance: also a child whose
// parent ended before it. Nobody waits longer than that takes.
func TestWhatEndsWhenAskedHasItsChance(t *testing.T) {
	for name, command := range map[string]string{
		"the command itself":        `trap 'sleep 0.3; echo saved > saved; exit' TERM; echo x > ready; while :; do sleep 0.05; done`,
		"a child of the command":    `sh -c "trap 'sleep 0.3; echo saved > saved; exit' TERM; echo x > ready; while :; do sleep 0.05; done"; :`,
		"a daemon":                  `(setsid sh -c "trap 'sleep 0.3; echo saved > saved; exit' TERM; echo x > ready; while :; do sleep 0.05; done" </dev/null >/dev/null 2>&1 &); sleep 1000`,
		"what heeds it by default":  `echo saved > saved; echo x > ready; sleep 1000`,
		"what writes on its output": `trap 'echo bye; echo saved > saved; exit' TERM; echo x > ready; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
			id := start(t, l, workspace, command)
			awaitFile(t, p.Path("workspace/ready"))
			n := awaitNarrowed(t, l, orderNarrow(t, l, wire.MaxGraceSeconds))
			wantEmpty(t, c)
			if b, err := os.ReadFile(p.Path("workspace/saved")); string(b) != "saved\n" {
				t.Errorf("it saved %q (%v)", b, err)
			}
			wantExitedBeforeNarrowed(t, l, n.Epoch, id)
			if r := wait(t, l, id); r.Cause != wire.Narrowing || n.Killed == 0 {
				t.Errorf("the call ended as %+v, narrowed as %+v", r.Exited, n)
			}
		})
	}
}

// What does not end when asked is killed: once narrowed is there, not a byte more is written.
func TestTheGraceEnds(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	states := map[string]string{}
	for i, writer := range []string{
		`trap '' TERM; echo x > $f; while :; do echo x >> $f; sleep 0.01; done`,
		`trap 'while :; do echo y >> '$f'; done' TERM; echo x > $f; while :; do sleep 0.01; done`,
		`echo x > $f; (setsid sh -c 'trap "" TERM HUP; while :; do echo x >> '$f'; done' </dev/null >/dev/null 2>&1 &) ; sleep 1000`,
		`trap '' TERM; echo x > $f; while :; do (setsid sh -c 'echo x >> '$f'; sleep 5' &) ; done`,
	} {
		name := []string{"ignores", "starts-anew", "daemon", "storm"}[i]
		id := start(t, l, danger, "f="+name+"\n"+writer)
		awaitFile(t, p.Path("workspace", name))
		e := orderNarrow(t, l, 1)
		n := awaitNarrowed(t, l, e)
		states[name] = contentOf(t, p.Path("workspace", name))
		wantEmpty(t, c)
		wantExitedBeforeNarrowed(t, l, e, id)
		if n.Killed == 0 {
			t.Errorf("%s: narrowed says that %d processes were ended", name, n.Killed)
		}
		if err := l.Widen(danger); err != nil {
			t.Fatal(err)
		}
	}
	for name, state := range states {
		if now := contentOf(t, p.Path("workspace", name)); now != state {
			t.Errorf("%s is not what it was when narrowed came", name)
		}
	}
}

const stubborn = `trap '' TERM; echo x > ready; while :; do sleep 0.05; done`

// During the grace nothing starts, under no epoch; afterwards calls run again.
func TestNothingStartsDuringTheGrace(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	start(t, l, workspace, stubborn)
	awaitFile(t, p.Path("workspace/ready"))
	old, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"echo x > old"}`)
	if err != nil {
		t.Fatal(err)
	}
	e := orderNarrow(t, l, 2)
	if err := l.Send(wire.Frame{Start: old}); err != nil {
		t.Fatal(err)
	}
	if err := l.Widen(workspace); err != nil {
		t.Fatal(err)
	}
	r, err := l.Call(workspace, wire.Workspace, "bash", `{"command":"echo x > new"}`)
	if err != nil || r.Cause != wire.Refused {
		t.Errorf("a call during the grace ended as %+v, %v", r.Exited, err)
	}
	if isNarrowed(l, e) {
		t.Error("the grace was over before anything could be refused")
	}
	if r := wait(t, l, old.Call); r.Cause != wire.Refused {
		t.Errorf("a call of an earlier epoch ended as %+v", r.Exited)
	}
	awaitNarrowed(t, l, e)
	wantEmpty(t, c)
	wantAbsent(t, p.Path("workspace/old"))
	wantAbsent(t, p.Path("workspace/new"))
	if r, err := l.Call(workspace, wire.Workspace, "bash", `{"command":"echo x > new"}`); err != nil || r.Cause != wire.Finished {
		t.Errorf("a call after the grace ended as %+v, %v", r.Exited, err)
	}
}

// A start that races with a narrowing that has a grace runs not at all, or is ended before narrowed.
func TestAStartThatRacesWithAGrace(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	for i := range 20 {
		st, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"exec sleep 1000"}`)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(wire.Frame{Start: st}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 400 * time.Microsecond) // another point of its way each time
		e := orderNarrow(t, l, wire.MaxGraceSeconds)
		awaitNarrowed(t, l, e)
		wantEmpty(t, c)
		if r := wait(t, l, st.Call); r.Cause != wire.Narrowing {
			t.Fatalf("the call ended as %+v", r.Exited)
		}
		if err := l.Widen(workspace); err != nil {
			t.Fatal(err)
		}
	}
}

// A second narrowing during a grace can only shorten it, and both are answered.
func TestASecondNarrowingDuringAGrace(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	id := start(t, l, workspace, stubborn)
	awaitFile(t, p.Path("workspace/ready"))
	first := orderNarrow(t, l, wire.MaxGraceSeconds)
	second := orderNarrow(t, l, 0)
	one, two := awaitNarrowed(t, l, first), awaitNarrowed(t, l, second)
	wantEmpty(t, c)
	if one.Killed == 0 || two.Killed != 0 {
		t.Errorf("narrowed says %d and %d, want each process to be counted once", one.Killed, two.Killed)
	}
	wantExitedBeforeNarrowed(t, l, first, id)
	if err := l.Widen(workspace); err != nil {
		t.Fatal(err)
	}
	if r := call(t, l, workspace, "bash", `{"command":"true"}`); r.Cause != wire.Finished {
		t.Errorf("a call after it ended as %+v", r.Exited)
	}
}

// What has another reason to end does not outlive it because of a grace.
func TestTheGraceProlongsNothing(t *testing.T) {
	for name, end := range map[string]func(*runnertest.Link, string) error{
		"a cancelled call":        func(l *runnertest.Link, id string) error { return l.Send(wire.Frame{Stop: &wire.Stop{Call: id}}) },
		"the end of a connection": func(l *runnertest.Link, _ string) error { l.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
			id := start(t, l, workspace, stubborn)
			awaitFile(t, p.Path("workspace/ready"))
			orderNarrow(t, l, wire.MaxGraceSeconds)
			if err := end(l, id); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the container is empty", func() bool { n, err := c.Processes(); return err == nil && n == 1 })
		})
	}
}

// Where there are no scopes, a command cannot end its own watcher by the signal that is not for it.
func TestTheGraceWithoutScopes(t *testing.T) {
	p := runnertest.NewPod(t, mutant(t, "abi5"))
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	id := start(t, l, workspace, `(setsid sh -c "trap 'sleep 0.3; echo saved > saved; exit' TERM; echo x > ready; while :; do sleep 0.05; done" </dev/null >/dev/null 2>&1 &); sleep 1000`)
	awaitFile(t, p.Path("workspace/ready"))
	e := orderNarrow(t, l, wire.MaxGraceSeconds)
	awaitNarrowed(t, l, e)
	wantEmpty(t, c)
	awaitFile(t, p.Path("workspace/saved"))
	wantExitedBeforeNarrowed(t, l, e, id)
}
