// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
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

// open starts a command in a terminal.
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
