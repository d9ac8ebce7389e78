// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/linkserver/linktest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/replaymodel"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// The programs as they are shipped, built once.
var programs = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return nil, err
	}
	toolbox, err := runnertest.Build(dir, "")
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the agent: %w\n%s", err, b)
	}
	return map[string]string{"agent": out, "toolbox": toolbox, "dir": dir}, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if p, err := programs(); err == nil {
		_ = os.RemoveAll(p["dir"])
	}
	os.Exit(code)
}

const (
	uid         = "5a6f0c1e-0000-4000-8000-000000000001"
	incarnation = "k7x2p"
)

// pod is a session's pod without Kubernetes: the agent's process, the real toolbox in
// containers made of namespaces, and a model that replays a script.
type pod struct {
	t       *testing.T
	agent   string
	pod     *runnertest.Pod
	dir     string
	ca      *linktest.CA
	addr    string
	link    *linktest.Client
	cmd     *exec.Cmd
	stdout  *os.File
	desired wire.Desired
	sent    int // messages
	tools   map[string]*runnertest.Container
}

func newPod(t *testing.T) *pod {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	script, err := replaymodel.Load("testdata/session.yaml")
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(replaymodel.New(script))
	t.Cleanup(model.Close)
	p := &pod{t: t, agent: built["agent"], pod: runnertest.NewPod(t, built["toolbox"]), dir: t.TempDir(), ca: linktest.NewCA(t)}
	p.ca.WriteSecret(t, p.dir, uid, incarnation)
	p.desired = wire.Desired{
		Wire: wire.Version, SessionUID: uid, Incarnation: incarnation,
		Config: wire.Config{
			Session: "demo/fix", Workspace: wire.Workspace,
			Model: wire.Model{Provider: "OpenAIChat", BaseURL: model.URL + "/v1", Name: "replay"},
		},
		Stamp: policy.Stamp{SessionUID: uid, ClassUID: "class", ClassCreated: time.Unix(1, 0).UTC(), ClassGeneration: 1},
	}
	p.stdout, err = os.Create(filepath.Join(p.dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	p.addr = freeAddress(t)
	p.startAgent()
	p.tools = map[string]*runnertest.Container{}
	for _, c := range []string{wire.ToolsRO, wire.ToolsRW} {
		p.tools[c] = p.pod.Start(t, c, runnertest.Options{})
	}
	p.link = p.ca.Client(t, p.addr, uid, incarnation, wire.ClientName, x509.ExtKeyUsageClientAuth)
	return p
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (p *pod) startAgent() {
	p.t.Helper()
	cmd := exec.Command(p.agent, "run", "--session-uid", uid, "--incarnation", incarnation, "--ca-hash", p.ca.Hash(),
		"--listen", p.addr, "--log-dir", p.logDir(), "--ctl-dir", p.pod.Path("ctl"), "--tls-dir", p.dir,
		"--model-key-file", filepath.Join(p.dir, "apiKey"))
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"POD_UID=pod"}, p.stdout, &stderr
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd = cmd
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("the agent said:\n%s", stderr.String())
		}
	})
}

func (p *pod) logDir() string { return filepath.Join(p.dir, "log") }

// patience is how long anything may take.
const patience = 2 * time.Minute

// put pushes until an agent answers.
func (p *pod) put() wire.Observed {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		status, body, err := p.link.Put(p.t.Context(), p.desired)
		if err == nil {
			return p.observed(status, body)
		}
		if time.Now().After(end) { // it is not there yet, and will not come
			p.t.Fatal(err)
		}
	}
}

func (p *pod) observed(status int, body []byte) wire.Observed {
	p.t.Helper()
	var o wire.Observed
	if err := json.Unmarshal(body, &o); err != nil || status != http.StatusOK && status != http.StatusAccepted {
		p.t.Fatalf("answered %d %s", status, body)
	}
	return o
}

func (p *pod) await(what string, holds func(wire.Observed) bool) wire.Observed {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for o := p.put(); ; {
		if holds(o) {
			return o
		}
		status, body, err := p.link.Do(ctx, http.MethodGet, fmt.Sprintf("%s?after=%d", wire.ObservedPath, o.Revision), nil)
		if err != nil {
			p.t.Fatalf("waiting until %s: %v; observed last: %+v", what, err, o)
		}
		o = p.observed(status, body)
	}
}

func (p *pod) switchTo(m policy.Mode) wire.Observed {
	p.t.Helper()
	p.desired.Policy = string(policy.Encode(policy.Policy{Mode: m, Ceiling: policy.Unbounded}).Bytes)
	p.desired.Stamp.SessionGeneration++
	return p.await(m.String()+" is applied", func(o wire.Observed) bool {
		return o.Applied != nil && o.Applied.Stamp == p.desired.Stamp
	})
}

func (p *pod) send(content string) (uid string) {
	p.sent++
	uid = fmt.Sprintf("m%d", p.sent)
	p.desired.Messages = append(p.desired.Messages, wire.Message{UID: uid, Author: "alice", Content: content})
	p.put()
	return uid
}

func (p *pod) answered(uid string) wire.MessageStatus {
	p.t.Helper()
	var found wire.MessageStatus
	p.await("message "+uid+" is answered", func(o wire.Observed) bool {
		i := slices.IndexFunc(o.Messages, func(m wire.MessageStatus) bool { return m.UID == uid && m.State == wire.Answered })
		if i >= 0 {
			found = o.Messages[i]
		}
		return i >= 0
	})
	return found
}

func (p *pod) say(content string) wire.MessageStatus {
	p.t.Helper()
	return p.answered(p.send(content))
}

func (p *pod) workspace(name string) string { return p.pod.Host(filepath.Join(wire.Workspace, name)) }

// grows waits until a file has grown beyond n bytes.
func (p *pod) grows(name string, n int64) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); p.size(name) <= n; {
		if time.Now().After(end) {
			p.t.Fatalf("%s did not grow beyond %d bytes within a minute", name, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *pod) size(name string) int64 {
	info, err := os.Stat(p.workspace(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// events reads the log with the agent's own command, after it has checked the chain.
func (p *pod) events() []eventlog.Event {
	p.t.Helper()
	var out bytes.Buffer
	if err := run([]string{"log", "verify", p.logDir()}, &out, &out); err != nil {
		p.t.Fatal(err)
	}
	out.Reset()
	if err := run([]string{"log", "export", p.logDir()}, &out, &out); err != nil {
		p.t.Fatal(err)
	}
	var all []eventlog.Event
	for line := range strings.Lines(out.String()) {
		var e eventlog.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (p *pod) results() []eventlog.ToolResult {
	p.t.Helper()
	var all []eventlog.ToolResult
	for _, e := range p.events() {
		if e.Type != eventlog.TypeToolResult {
			continue
		}
		var r eventlog.ToolResult
		if err := e.Decode(&r); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// The main job: read-only refuses in the kernel and the model hears of it; a switch is told
// and the write lands; the switch back ends what writes, to the last byte.
func TestASwitchIsTrueForToolsAndModel(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.ReadOnly)
	p.say("write with bash")
	p.say("write with write")
	if p.size("hello.txt")+p.size("written.txt") != 0 {
		t.Fatal("read-only let a write pass")
	}
	p.switchTo(policy.WorkspaceWrite)
	p.say("write with bash")
	p.say("write with write")
	if p.size("hello.txt") == 0 || p.size("written.txt") == 0 {
		t.Error("workspace-write refused a write in the workspace")
	}
	m := p.send("write for ever")
	p.grows("growth", 0)
	o := p.switchTo(policy.ReadOnly)
	size := p.size("growth")
	if o.Applied.Killed == 0 {
		t.Error("the narrowing ended no process")
	}
	if got := p.answered(m); got.Reply != "It was stopped." {
		t.Errorf("the turn ended with %+v", got)
	}
	if now := p.size("growth"); now != size {
		t.Errorf("the file grew from %d to %d bytes after the narrowing", size, now)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the agent ended with %v", err)
	}
	results := p.results()
	for i, want := range []string{"exit status 1; sandbox mode read-only", "denied: ", "exit status 0", "", "stopped: the sandbox was narrowed"} {
		if !strings.Contains(results[i].Text, want) {
			t.Errorf("result %d is %q, want it to say %q", i+1, results[i].Text, want)
		}
	}
	if !strings.Contains(results[0].Text, "A guess") || results[1].Denial == nil {
		t.Errorf("the denials are %+v and %+v", results[0], results[1])
	}
	mirrored, err := os.ReadFile(p.stdout.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(mirrored, []byte(`"type":"context/snapshot"`)); n != 3 {
		t.Errorf("standard output shows %d snapshots, want 3", n)
	}
}

// A confirmed narrowing is the last moment at which anything was written.
func TestNothingIsWrittenAfterANarrowing(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	for range 20 {
		m := p.send("write for ever")
		p.grows("growth", p.size("growth"))
		p.switchTo(policy.ReadOnly)
		size := p.size("growth")
		p.answered(m)
		p.switchTo(policy.WorkspaceWrite)
		if now := p.size("growth"); now != size {
			t.Fatalf("the file grew from %d to %d bytes after the narrowing", size, now)
		}
	}
}

// kill -9 of the agent in the middle of a call: the log verifies, the call is marked, nothing
// of it lives, the turn goes on, and the next message is answered.
func TestTheAgentIsKilledInTheMiddleOfACall(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	m := p.send("write for ever")
	p.grows("growth", 0)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.startAgent()
	p.await("the policy is applied again", func(o wire.Observed) bool { return o.Applied != nil })
	size := p.size("growth")
	if got := p.answered(m); got.Reason != agent.ReasonCompleted || got.Turn != 1 || got.Reply != "Finished." {
		t.Errorf("the first message is %+v: its turn did not go on", got)
	}
	if got := p.say("write with bash"); got.Reason != agent.ReasonCompleted {
		t.Errorf("the next message is %+v", got)
	}
	if now := p.size("growth"); now != size {
		t.Errorf("what the dead agent had started wrote on: %d, then %d bytes", size, now)
	}
	results := p.results()
	if len(results) != 2 || results[0].Outcome != eventlog.OutcomeUnknown || !strings.Contains(results[0].Text, "outcome unknown") {
		t.Errorf("the results are %+v", results)
	}
}

// A tools container that dies in the middle of a call: the call is marked and the session goes on
// when the container is back.
func TestAToolsContainerIsKilledInTheMiddleOfACall(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	m := p.send("write for ever")
	p.grows("growth", 0)
	p.tools[wire.ToolsRW].Kill()
	p.await("it is gone", func(o wire.Observed) bool { return o.Activity.State == wire.Paused })
	p.tools[wire.ToolsRW] = p.pod.Start(t, wire.ToolsRW, runnertest.Options{})
	p.answered(m)
	if got := p.say("write with bash"); got.Reason != agent.ReasonCompleted || p.size("hello.txt") == 0 {
		t.Errorf("the next message is %+v", got)
	}
	if results := p.results(); results[0].Outcome != eventlog.OutcomeUnknown {
		t.Errorf("the results are %+v", results)
	}
}

// A command that tries to be the supervisor while the agent is away does not become it: what
// the agent then starts is run by the real one.
func TestACommandDoesNotPassForTheSupervisor(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	m := p.send("impersonate")
	p.grows("tried", 0)
	for range 5 {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Wait()
		p.startAgent()
		p.await("the policy is applied again", func(o wire.Observed) bool { return o.Applied != nil })
		p.answered(m)
		if p.size("welcomed") != 0 {
			t.Fatal("a command was welcomed as the supervisor")
		}
		m = p.send("impersonate")
		p.grows("tried", p.size("tried"))
	}
}

// A second agent on the same log is refused, with what to do.
func TestASecondAgentIsRefused(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.ReadOnly)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.agent, "run", "--session-uid", uid, "--incarnation", incarnation, "--ca-hash", p.ca.Hash(),
		"--listen", "127.0.0.1:0", "--log-dir", p.logDir(), "--ctl-dir", t.TempDir(), "--tls-dir", p.dir).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("in use by another process")) {
		t.Errorf("it ended with %v and said %s", err, out)
	}
}

// The other provider: the same session over Anthropic's messages.
func TestASessionOverMessages(t *testing.T) {
	p := newPod(t)
	p.desired.Config.Model.Provider = "Anthropic"
	p.switchTo(policy.ReadOnly)
	p.say("write with bash")
	p.switchTo(policy.WorkspaceWrite)
	if got := p.say("write with bash"); got.Reason != agent.ReasonCompleted || got.Reply != "Finished." || p.size("hello.txt") == 0 {
		t.Errorf("the second message is %+v", got)
	}
	if results := p.results(); len(results) != 2 || !results[0].IsError || results[1].IsError {
		t.Errorf("the results are %+v", results)
	}
}
