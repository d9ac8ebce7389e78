// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/pty"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func terminalArgs(command string) string {
	b, err := json.Marshal(map[string]string{"action": "open", "command": command})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// openTerminal starts a command in a terminal.
func openTerminal(t *testing.T, l *runnertest.Link, p policy.Profile, command string) (string, *runnertest.Terminal) {
	t.Helper()
	st, err := l.Order(p, wire.Workspace, "terminal", terminalArgs(command))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	return st.Call, l.Terminal(st.Call)
}

// A terminal is one in every mode: it controls the session, has a size, echoes, takes
// control keys, and ends with its command.
func TestATerminalInEveryMode(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	for _, m := range policy.Modes() {
		t.Run(m.String(), func(t *testing.T) {
			prof := policy.Profile{Mode: m}
			c, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{})
			id, term := openTerminal(t, l, prof, "")
			says := func(input, want string) {
				t.Helper()
				if err := term.Type(input); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the terminal says "+want, func() bool { return strings.Contains(term.Text(), want) })
			}
			says("test -t 0 && test -t 1 && test -t 2 && echo all=$((1+1))\n", "all=2\n")
			says("stty size; stty -a >/dev/null && stty echo && echo set=$?\n", "24 80\nset=0\n")
			says("echo own=$((2+3)) > /dev/tty; echo err=$((3+4)) > /dev/stderr\n", "own=5\n")
			says("", "err=7\n")
			says("sh -c 'echo run=$((7+1)); exec sleep 1000'\n", "run=8\n")
			says("\x03echo after=$((4+5))\n", "after=9\n")
			says("ps -o tty= -p $$ >/dev/null; ls /proc/$$/fd | tr '\\n' ' '; echo\n", "0 1 2 ") // 255 is bash's own
			if err := term.Type("exit 7\n"); err != nil {
				t.Fatal(err)
			}
			r := wait(t, l, id)
			if r.Cause != wire.Finished || r.Status != 7 {
				t.Errorf("exited = %+v\n%s", r.Exited, r.Output)
			}
			wantNoCall(t, c)
			if r := call(t, l, prof, "terminal", terminalArgs("echo $TERM; exit 3")); r.Status != 3 || r.Output != "dumb\n" {
				t.Errorf("a command in a terminal: %+v", r)
			}
		})
	}
}

// No path and no descriptor of another process leads to a terminal, in any mode: its device is
// in the agent's container.
func TestNothingReachesTheTerminalOfAnotherCall(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	const reach = `for p in /proc/[0-9]*; do if [ "$(tr -d '\0' < $p/cmdline)" = victim1000 ]; then pid=${p#/proc/}; fi; done 2>/dev/null
echo pid=$pid; ls -1 /dev/pts
for fd in 0 1 2; do for how in read append; do /toolbox/toolbox attempt $how /proc/$pid/fd/$fd; done; done
/toolbox/toolbox attempt ptrace $pid; kill -9 $pid 2>&1 | sed 's/.*- //'`
	const denials = "denied EACCES\ndenied EACCES\ndenied EACCES\ndenied EACCES\ndenied EACCES\ndenied EACCES\ndenied EPERM\nOperation not permitted\n"
	for _, m := range policy.Modes() {
		t.Run(m.String(), func(t *testing.T) {
			prof := policy.Profile{Mode: m}
			_, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{})
			id, victim := openTerminal(t, l, prof, "echo up; exec -a victim sleep 1000")
			eventually(t, "the victim is up", func() bool { return victim.Text() == "up\n" })
			for _, name := range []string{"bash", "terminal"} {
				args := bashArgs(reach)
				if name == "terminal" {
					args = terminalArgs(reach)
				}
				first, rest, _ := strings.Cut(call(t, l, prof, name, args).Output, "\n")
				if first == "pid=" || rest != "ptmx\n"+denials {
					t.Errorf("by %s: %s, then %q", name, first, rest)
				}
			}
			if got := victim.Text(); got != "up\n" {
				t.Errorf("somebody wrote into the terminal: %q", got)
			}
			if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: id}}); err != nil {
				t.Fatal(err)
			}
			if r := wait(t, l, id); r.Cause != wire.Cancelled {
				t.Errorf("exited = %+v", r.Exited)
			}
		})
	}
}

// What a terminal leaves goes with it: at its end, when it is closed, and when the sandbox is
// narrowed; what has left the session, and what holds the terminal open, too.
func TestNothingOutlivesATerminal(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		end     func(t *testing.T, l *runnertest.Link, id string)
		want    wire.Cause
	}{
		"at its end": {hydra + "exit 4", func(*testing.T, *runnertest.Link, string) {}, wire.Finished},
		"when it is closed": {hydra + "sleep 1000", func(t *testing.T, l *runnertest.Link, id string) {
			if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: id}}); err != nil {
				t.Fatal(err)
			}
		}, wire.Cancelled},
		"when the sandbox is narrowed": {hydra + "sleep 1000", func(t *testing.T, l *runnertest.Link, id string) {
			n, err := l.Narrow(readOnly)
			if err != nil {
				t.Fatal(err)
			}
			wantExitedBeforeNarrowed(t, l, n.Epoch, id)
		}, wire.Narrowing},
		"when something else has the terminal": {"(setsid sh -c 'trap \"\" HUP; while :; do echo x >> daemon; echo x; sleep 0.02; done' &); " +
			"while [ ! -s daemon ]; do sleep 0.01; done; exit 4", func(*testing.T, *runnertest.Link, string) {}, wire.Finished},
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
			id, term := openTerminal(t, l, danger, tc.command)
			awaitFile(t, p.Path("workspace/daemon"))
			tc.end(t, l, id)
			r := wait(t, l, id) // the terminal's far end is closed everywhere, or this waits for ever
			size := sizeOf(t, p.Path("workspace/daemon"))
			wantNoCall(t, c)
			if r.Cause != tc.want || tc.want != wire.Narrowing && r.Processes == 0 || tc.want == wire.Finished && r.Status != 4 {
				t.Errorf("exited = %+v", r.Exited)
			}
			if again := sizeOf(t, p.Path("workspace/daemon")); again != size {
				t.Errorf("the daemon wrote after the end: %d bytes, then %d", size, again)
			}
			if err := term.Type("x"); err == nil {
				t.Error("something can still be typed")
			}
		})
	}
}

// A widening does not reach what was opened before it: a terminal keeps its sandbox until it ends.
func TestATerminalIsNotWidened(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	id, term := openTerminal(t, l, workspace, "read; touch /extra/new; exit 0")
	if err := l.Widen(danger); err != nil {
		t.Fatal(err)
	}
	call(t, l, danger, "bash", bashArgs("touch /extra/other"))
	if err := term.Type("\n"); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, l, id); !strings.Contains(r.Output, "Permission denied") {
		t.Errorf("the terminal said %q", r.Output)
	}
	wantAbsent(t, p.Path("extra/new"))
	if _, err := os.Stat(p.Path("extra/other")); err != nil {
		t.Error(err)
	}
}

// A terminal that nobody reads holds up its command, and nothing else.
func TestAFloodInATerminalStopsNobody(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	hear := l.DeafenTerminals()
	id, _ := openTerminal(t, l, workspace, "yes")
	before := memoryOf(t, c)
	if r := call(t, l, workspace, "bash", bashArgs("echo beside")); r.Output != "beside\n" {
		t.Errorf("another call: %+v", r)
	}
	if after := memoryOf(t, c); after > before+4<<10 {
		t.Errorf("the supervisor grew from %d KiB to %d KiB", before, after)
	}
	if _, err := l.Narrow(readOnly); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, c)
	hear()
	if r := wait(t, l, id); r.Cause != wire.Narrowing {
		t.Errorf("exited = %+v", r.Exited)
	}
}

// Only the far end of a terminal is taken for one, only to open it, and only where it can be
// ended alone.
func TestTerminalsThatAreRefused(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	touch := terminalArgs("touch ran")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	pair, err := pty.Open(24, 80)
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close()
	for what, fd := range map[string]uintptr{"a pipe": write.Fd(), "the near end": pair.Near.Fd()} {
		st, err := l.Order(workspace, wire.Workspace, "terminal", touch)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SendWith(wire.Frame{Start: st}, int(fd)); err != nil {
			t.Fatal(err)
		}
		if r := wait(t, l, st.Call); r.Cause != wire.SetupFailed || !strings.Contains(r.Detail, "terminal") {
			t.Errorf("%s: %+v", what, r.Exited)
		}
	}
	if r := call(t, l, workspace, "terminal", `{"action":"send","input":"x"}`); r.Cause != wire.Refused {
		t.Errorf("an action that opens none: %+v", r.Exited)
	}
	st, err := l.Order(workspace, wire.Workspace, "terminal", touch)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Send(wire.Frame{Start: st}); err != nil { // without a terminal
		t.Fatal(err)
	}
	if err := l.AwaitEnd(20 * time.Second); err != nil {
		t.Errorf("an order that lacks its terminal does not end the connection: %v", err)
	}
	eventually(t, "the container is empty", func() bool { n, err := c.Processes(); return err == nil && n == 1 })

	older := runnertest.NewPod(t, mutant(t, "abi5"))
	_, _, l = connect(t, older, wire.ToolsRW, workspace, runnertest.Options{})
	if r := call(t, l, workspace, "terminal", touch); r.Cause != wire.Refused || !strings.Contains(r.Detail, "there are no terminals on this node") {
		t.Errorf("without scopes: %+v", r.Exited)
	}
	wantAbsent(t, p.Path("workspace/ran"))
	wantAbsent(t, older.Path("workspace/ran"))
}
