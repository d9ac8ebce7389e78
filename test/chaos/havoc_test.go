// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/test/cluster"
)

// havoc is one way to break something. It returns when that is over, or mends itself.
type havoc struct {
	name    string
	lasting bool // it needs a session whose storage outlives its pod
	do      func(ctx context.Context, s *session) error
}

// havocs are all ways.
func havocs() []havoc {
	return []havoc{
		{"kill the operator", false, killOperator},
		{"kill the agent", false, kill("agent", "run", "--session-uid")},
		{"kill the tools", false, kill("supervise", "--container", "tools-rw")},
		{"freeze the agent", false, freezeAgent},
		{"kill the apiserver", false, killPart("kube-apiserver")},
		{"kill etcd", false, killPart("etcd")},
		{"drop the link", false, dropLink},
		{"fill the disk", true, fillDisk},
		{"delete the pod", true, deletePod},
		{"suspend and resume", true, suspend},
	}
}

// wreak breaks one thing after the other until the time is over. Each is broken at least once
// where the time allows it, which is checked.
func wreak(t *testing.T, ctx context.Context, random *rand.Rand, sessions []*session) {
	t.Helper()
	done := map[string]int{}
	all := havocs()
	i := 0
	for ; ctx.Err() == nil; i++ {
		if i%len(all) == 0 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		h := all[i%len(all)]
		random.Shuffle(len(sessions), func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
		s := sessions[0]
		if h.lasting { // one whose storage stays
			s = sessions[slices.IndexFunc(sessions, func(s *session) bool { return s.disk != "" })]
		}
		t.Logf("%s: %s (%s)", time.Now().Format(time.TimeOnly), h.name, s.name)
		// What was begun is brought to its end.
		switch err := h.do(context.WithoutCancel(ctx), s); {
		case errors.Is(err, errTooling):
			t.Errorf("%s: %v", h.name, err)
		case err != nil:
			t.Logf("    left out: %v", err)
		default:
			done[h.name]++
		}
		sleep(ctx, time.Duration(1+random.IntN(7))*time.Second)
	}
	for _, h := range all {
		t.Logf("%-20s %d times", h.name, done[h.name])
		if done[h.name] == 0 && i >= 2*len(all) {
			t.Errorf("%s: it was left out each time, so nothing is known of it", h.name)
		}
	}
}

func killOperator(ctx context.Context, _ *session) error {
	pod, err := kube.Kubectl(ctx, "-n", system, "get", "pods", "-l", "app.kubernetes.io/component=manager", "-o", "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}")
	if err != nil {
		return err
	}
	name, uid, _ := strings.Cut(pod, " ")
	if err := cluster.Signal(uid, syscall.SIGKILL, "manager", "--leader-elect"); err != nil {
		return err
	}
	// A new pod, because the kubelet would wait longer each time.
	_, err = kube.Kubectl(ctx, "-n", system, "delete", "pod", name, "--wait=false")
	return err
}

func kill(words ...string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		uid, err := s.podUID(ctx)
		if err != nil {
			return err
		}
		return cluster.Signal(uid, syscall.SIGKILL, words...)
	}
}

func freezeAgent(ctx context.Context, s *session) error {
	uid, err := s.podUID(ctx)
	if err != nil {
		return err
	}
	pid, err := agentOf(uid)
	if err != nil {
		return err
	}
	thaw := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	undo.Store(uid, thaw)
	defer undo.Delete(uid)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer thaw()
	sleep(ctx, 8*time.Second)
	if now, err := agentOf(uid); err != nil || now != pid {
		return fmt.Errorf("it ended while it was frozen")
	}
	return nil
}

// agentOf is the process of a pod's agent.
func agentOf(podUID string) (int, error) {
	pids := cluster.Processes(podUID, "agent", "run", "--session-uid")
	if len(pids) != 1 {
		return 0, fmt.Errorf("the agent does not run")
	}
	return pids[0], nil
}

// killPart kills a program of the cluster and has it started again.
func killPart(name string) func(context.Context, *session) error {
	return func(ctx context.Context, _ *session) error {
		err := cluster.SignalPart(*state, name, syscall.SIGKILL)
		sleep(ctx, 2*time.Second)
		if broken := up(ctx); broken != nil { // also where it has ended by itself
			return errors.Join(errTooling, err, broken)
		}
		return err
	}
}

// errTooling is a fault of what starts the cluster, not of what is tested. It is none the less one.
var errTooling = errors.New("the cluster is not as it should be")

func up(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join(here, root, "hack/kube"), "run", ".", "up")
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("starting the cluster again: %w: %s", err, out)
	}
	return nil
}

func deletePod(ctx context.Context, s *session) error {
	got, err := s.get(ctx)
	if err != nil {
		return err
	}
	if got.Status.PodName == "" {
		return fmt.Errorf("it has none")
	}
	_, err = kube.Kubectl(ctx, "-n", namespace, "delete", "pod", got.Status.PodName, "--wait=false")
	return err
}

func suspend(ctx context.Context, s *session) error {
	if _, err := s.patch(ctx, `{"spec":{"suspend":true}}`); err != nil {
		return err
	}
	sleep(ctx, 6*time.Second)
	_, err := s.patch(ctx, `{"spec":{"suspend":false}}`)
	return err
}

func (s *session) podUID(ctx context.Context) (string, error) {
	got, err := s.get(ctx)
	if err != nil {
		return "", err
	}
	if got.Status.PodName == "" {
		return "", fmt.Errorf("it has no pod")
	}
	return kube.Kubectl(ctx, "-n", namespace, "get", "pod", got.Status.PodName, "-o", "jsonpath={.metadata.uid}")
}
