// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

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
