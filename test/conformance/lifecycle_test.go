// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there (%v)", path, err)
	}
}

// wantEmpty demands that nothing but the supervisor lives in a container now.
func wantEmpty(t *testing.T, c *runnertest.Container) {
	t.Helper()
	if n, err := c.Processes(); err != nil || n != 1 {
		t.Errorf("%d processes are in the container (%v), want the supervisor alone", n, err)
	}
}

func start(t *testing.T, l *runnertest.Link, p policy.Profile, command string) string {
	t.Helper()
	st, err := l.Order(p, wire.Workspace, "bash", fmt.Sprintf(`{"command":%q}`, command))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	return st.Call
}

func wait(t *testing.T, l *runnertest.Link, id string) runnertest.Result {
	t.Helper()
	r, err := l.Wait(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitFile waits until a file has content: the command that writes it has come so far.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
	}
	t.Fatalf("%s was never written", path)
}

// eventually is for what the supervisor does on its own and does not announce.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never came true: %s", what)
}

// hydra leaves processes behind in every way there is to escape a parent.
const hydra = `trap '' TERM HUP INT
(setsid sh -c 'trap "" TERM; while :; do echo x >> daemon; sleep 0.02; done' </dev/null >/dev/null 2>&1 &)
(setsid setsid sleep 1000 & ) & sh -c '(sleep 1000 &) &'
while [ ! -s daemon ]; do sleep 0.01; done
`

func TestNothingOutlivesACall(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		stop    bool
		args    string
		want    wire.Cause
	}{
		"when the command ends":   {command: hydra + "exit 4", want: wire.Finished},
		"when it is stopped":      {command: hydra + "sleep 1000", stop: true, want: wire.Cancelled},
		"when its time is over":   {command: hydra + "sleep 1000", args: `,"timeout_seconds":1`, want: wire.TimedOut},
		"when it traces its init": {command: hydra + `python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(0,0,0,0)' ; exit 4`, want: wire.Finished},
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
			st, err := l.Order(danger, wire.Workspace, "bash", fmt.Sprintf(`{"command":%q%s}`, tc.command, tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(st); err != nil {
				t.Fatal(err)
			}
			awaitFile(t, p.Path("workspace/daemon"))
			if tc.stop {
				if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: st.Call}}); err != nil {
					t.Fatal(err)
				}
			}
			r := wait(t, l, st.Call)
			size := sizeOf(t, p.Path("workspace/daemon"))
			wantEmpty(t, c)
			if r.Cause != tc.want || r.Processes == 0 || tc.want == wire.Finished && r.Status != 4 {
				t.Errorf("exited = %+v", r.Exited)
			}
			if again := sizeOf(t, p.Path("workspace/daemon")); again != size {
				t.Errorf("the daemon wrote after the end of its call: %d bytes, then %d", size, again)
			}
		})
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// One call's end is not another's: the kill reaches its own domain only.
func TestCallsEndAlone(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	long := start(t, l, danger, "echo up > long; sleep 2; echo survived")
	awaitFile(t, p.Path("workspace/long"))
	for range 5 {
		call(t, l, workspace, "bash", fmt.Sprintf(`{"command":%q}`, hydra))
		if err := os.Remove(p.Path("workspace/daemon")); err != nil {
			t.Fatal(err)
		}
	}
	if r := wait(t, l, long); r.Status != 0 || r.Output != "survived\n" {
		t.Errorf("the other call: %+v", r)
	}
}

// Two calls of one user, in the widest mode, are nothing to each other.
func TestCallsCannotReachEachOther(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, `exec python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("\0other-call"); s.listen()
open("victim", "w").write(str(os.getpid()))
s.accept()'`)
	awaitFile(t, p.Path("workspace/victim"))
	r := call(t, l, danger, "bash", fmt.Sprintf(`{"command":%q}`, `pid=$(cat victim)
kill -9 $pid && echo killed
/toolbox/toolbox attempt ptrace $pid
/toolbox/toolbox attempt memory $pid
/toolbox/toolbox attempt environ $pid
/toolbox/toolbox attempt prlimit $pid
python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("\0other-call")' 2>&1 | tail -1`))
	want := "denied EPERM\ndenied EACCES\ndenied EACCES\ndenied EPERM\nPermissionError: [Errno 1] Operation not permitted\n"
	if _, got, _ := strings.Cut(r.Output, "Operation not permitted\n"); got != want {
		t.Errorf("the other call could be reached: %q, want %q", r.Output, want)
	}
}

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

func TestAFloodOfOutputEndsTheCall(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	st, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"head -c 1G /dev/zero"}`)
	if err != nil {
		t.Fatal(err)
	}
	st.Limits.OutputBytes = 1 << 20
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, l, st.Call); r.Cause != wire.OutputLimit || r.OutputBytes != 1<<20 || len(r.Output) != 1<<20 {
		t.Errorf("exited = %+v with %d bytes", r.Exited, len(r.Output))
	}
	wantEmpty(t, c)
}

func TestStartsThatAreRefused(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	for name, tc := range map[string]struct {
		change func(*wire.Start)
		denial wire.Denial
	}{
		"an earlier epoch":            {func(s *wire.Start) { s.Epoch.Boot-- }, wire.DeniedProfile},
		"a later epoch":               {func(s *wire.Start) { s.Epoch.Counter++ }, wire.DeniedProfile},
		"a profile beyond the bound":  {func(s *wire.Start) { s.Profile = danger }, wire.DeniedProfile},
		"a profile of the other one":  {func(s *wire.Start) { s.Profile = readOnly }, wire.DeniedProfile},
		"an open network":             {func(s *wire.Start) { s.Profile.Network = policy.NetworkOpen }, wire.DeniedProfile},
		"arguments of another digest": {func(s *wire.Start) { s.Arguments = `{"command":"touch other"}` }, ""},
		"another workspace":           {func(s *wire.Start) { s.Workspace = "/extra" }, ""},
		"an unknown tool":             {func(s *wire.Start) { s.Tool = "delete" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := l.Order(workspace, wire.Workspace, "bash", `{"command":"touch ran"}`)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(st)
			if err := l.Start(st); err != nil {
				t.Fatal(err)
			}
			if r := wait(t, l, st.Call); r.Cause != wire.Refused || r.Denial != tc.denial || r.Detail == "" {
				t.Errorf("exited = %+v", r.Exited)
			}
			wantAbsent(t, p.Path("workspace/ran"))
		})
	}
}

func TestWhenTheAgentDies(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, a, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, hydra+"sleep 1000")
	awaitFile(t, p.Path("workspace/daemon"))
	a.Close()
	l.Close()
	eventually(t, "the container is empty", func() bool { n, err := c.Processes(); return err == nil && n == 1 })

	again, err := runnertest.NewAgent(p.Ctl(wire.ToolsRW))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	m, err := again.Accept(wire.Epoch{Boot: 9}, workspace, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Hello.Boot != l.Hello.Boot {
		t.Error("the supervisor was replaced; it should have come back itself")
	}
	if r := call(t, m, workspace, "bash", `{"command":"echo back"}`); r.Output != "back\n" {
		t.Errorf("after the reconnection: %+v", r)
	}
}

func TestACommandCannotPassForTheSupervisor(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	if err := os.WriteFile(p.Path("workspace/impostor.py"), []byte(impostor), 0o644); err != nil {
		t.Fatal(err)
	}
	_, a, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, "python3 impostor.py")
	awaitFile(t, p.Path("workspace/connecting"))
	// The command connects while the real supervisor is busy with its own connection.
	for range 3 {
		if m, err := a.Accept(wire.Epoch{Boot: 2}, danger, 20*time.Second); !errors.Is(err, runnertest.ErrImpostor) {
			t.Fatalf("a command was accepted as supervisor: %+v, %v", m, err)
		}
	}
	// Once the agent's end is gone, the command is dead and the real one comes.
	l.Close()
	for {
		m, err := a.Accept(wire.Epoch{Boot: 3}, danger, 20*time.Second)
		if errors.Is(err, runnertest.ErrImpostor) || errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
			continue // still in the queue from before
		}
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if m.Hello.Boot != l.Hello.Boot {
			t.Error("another supervisor came")
		}
		return
	}
}

// impostor says hello with a descriptor of the lock of its own, in a loop.
const impostor = `
import array, fcntl, json, os, socket, struct
hello = json.dumps({"hello": {"wire": 1, "container": "tools-rw", "boot": "x", "enforcement": {"level": "Full", "landlockABI": 9}}}).encode()
while True:
    try:
        lock = os.open("/ctl/lock", os.O_RDONLY)
        try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: pass
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.connect("/ctl/agent.sock")
        s.sendmsg([struct.pack(">I", len(hello)) + hello], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lock]))])
        open("connecting", "w").write("x")
        s.recv(1)
    except OSError as e:
        pass
    os.close(lock); s.close()
`

func TestTheSupervisorEndsInOrder(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, hydra+"sleep 1000")
	awaitFile(t, p.Path("workspace/daemon"))
	if err := c.Terminate(); err != nil {
		t.Errorf("the supervisor ended with %v, want 0", err)
	}
	frames := l.Frames()
	if last := frames[len(frames)-1]; last.Terminating == nil || frames[len(frames)-2].Exited == nil {
		t.Errorf("the last frames are %+v", frames[len(frames)-2:])
	}
}

func TestWithoutAnAgentTheSupervisorEnds(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c := p.Start(t, wire.ToolsRO, runnertest.Options{AgentTimeout: 300 * time.Millisecond})
	if err := c.Wait(); err == nil || !strings.Contains(c.Log(), "no agent for too long") {
		t.Errorf("the supervisor ended with %v and said %s", err, c.Log())
	}
}

func TestAFrameThatIsNotUnderstoodEndsEverything(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	start(t, l, danger, hydra+"sleep 1000")
	if err := l.Send(wire.Frame{Started: &wire.Started{Call: "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.AwaitEnd(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container is empty", func() bool { n, err := c.Processes(); return err == nil && n == 1 })
}

// The lock decides who is supervisor: a second one waits, however early it comes.
func TestASecondSupervisorWaits(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	connect(t, p, wire.ToolsRW, danger, runnertest.Options{})
	second := p.Start(t, wire.ToolsRW, runnertest.Options{AgentTimeout: 500 * time.Millisecond})
	if err := second.Wait(); err == nil || !strings.Contains(second.Log(), "taking the lock") {
		t.Errorf("the second supervisor ended with %v and said %s", err, second.Log())
	}
	if _, err := os.Stat(filepath.Join(p.Ctl(wire.ToolsRW), wire.LockName)); err != nil {
		t.Error(err)
	}
}
