// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/wire"
	"github.com/agentsession-dev/operator/test/cluster"
)

// callsOf returns how the calls of the newest turn ended, in the order in which the model asked for them.
func (s *session) callsOf(message string) []conformance.Result {
	s.t.Helper()
	events := s.log()
	start := 0
	for i, e := range events {
		if e.Type == "turn/start" {
			start = i
		}
	}
	var order []string
	tools, results := map[string]string{}, map[string]event{}
	for _, e := range events[start:] {
		id, _ := e.Data["callID"].(string)
		switch e.Type {
		case "tool/call":
			order = append(order, id)
			tools[id], _ = e.Data["name"].(string)
		case "tool/result":
			results[id] = e
		}
	}
	var all []conformance.Result
	for _, id := range order {
		r, ok := results[id]
		if !ok {
			s.t.Fatalf("call %s of message %s has no result", id, message)
		}
		all = append(all, resultOf(tools[id], r))
	}
	return all
}

var (
	exitNote   = regexp.MustCompile(`(?m)^\((?:the command of the terminal \S+ has ended: )?exit status (\d+)(?:; [^)]*)?\)$`)
	signalNote = regexp.MustCompile(`(?m)^\((?:the command of the terminal \S+ has ended: )?ended by signal (\w+)(?:; [^)]*)?\)$`)
)

// resultOf reads back what the agent told the model of a call.
func resultOf(tool string, e event) conformance.Result {
	text, _ := e.Data["text"].(string)
	r := conformance.Result{Exited: wire.Exited{Cause: wire.Finished}, Output: text}
	if failed, _ := e.Data["isError"].(bool); failed {
		r.Status = 1
	}
	if denial, ok := e.Data["denial"].(string); ok {
		r.Denial = wire.Denial(denial)
	}
	if outcome, _ := e.Data["outcome"].(string); outcome != "" {
		r.Cause, r.Detail = wire.Cause(outcome), text
	}
	if tool != "bash" && tool != "terminal" {
		return r
	}
	if at := signalNote.FindStringSubmatchIndex(text); at != nil {
		r.Signal, r.Output = text[at[2]:at[3]], text[:at[0]]
	} else if at := exitNote.FindStringSubmatchIndex(text); at != nil {
		r.Status, _ = strconv.Atoi(text[at[2]:at[3]])
		r.Output = text[:at[0]]
	} else {
		r.Cause, r.Detail = "without an end", text
	}
	return r
}

// nodeIsHere reports whether this machine is the node, so that a volume can be prepared on it.
func nodeIsHere(t *testing.T) bool {
	t.Helper()
	uid := must(t)(kube.Kubectl(t.Context(), "-n", system, "get", "pods", "-l", "app.kubernetes.io/name=agentsession",
		"-o", "jsonpath={.items[0].metadata.uid}"))
	return os.Geteuid() == 0 && len(cluster.Processes(uid)) > 0
}

// mountOutside gives both tools containers one more writable directory, as a volume of a class might be:
// what is outside the workspace is refused by the sandbox there, and not by permissions.
func (s *session) mountOutside() {
	s.t.Helper()
	dir := s.t.TempDir()
	err := os.Chmod(dir, 0o755)
	if user := s.fixtures(0, conformance.DoDescribe, nil).Where.User; err == nil {
		err = os.Chown(dir, user, user)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, container := range []string{wire.ToolsRO, wire.ToolsRW} {
		pids := s.supervisors(container)
		if len(pids) != 1 {
			s.t.Fatalf("%s has %d supervisors", container, len(pids))
		}
		if err := mountInto(pids[0], dir, outsideDir); err != nil {
			s.t.Fatalf("mounting a volume into %s: %v", container, err)
		}
	}
}

func (s *session) supervisors(container string) []int {
	s.t.Helper()
	return cluster.Processes(podUID(s.t, s.key.Namespace, s.pod()), "supervise", container)
}

// mountInto binds a directory of this machine to a path that a process sees.
func mountInto(pid int, dir, target string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("taking %s: %w", dir, err)
	}
	defer unix.Close(tree)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and end with it: it is in another namespace from here on
		ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(ns, unix.CLONE_NEWNS), unix.Close(ns))
		}
		if err == nil {
			err = unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		done <- err
	}()
	return <-done
}
