// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/agentsession-dev/operator/test/cluster"
)

// havoc is one way to break something. It returns when that is over, or mends itself.
type havoc struct {
	name string
	do   func(ctx context.Context, s *session) error
}

// havocs are all ways. Those of a session need one whose storage stays, but for the
// killing of containers, which no session may mind.
func havocs() []havoc {
	return []havoc{
		{"kill the operator", killOperator},
		{"kill the agent", kill("agent", "run", "--session-uid")},
		{"kill the tools", kill("supervise", "--container", "tools-rw")},
		{"freeze the agent", freezeAgent},
		{"kill the apiserver", killPart("kube-apiserver")},
		{"kill etcd", killPart("etcd")},
		{"drop the link", dropLink},
		{"fill the disk", fillDisk},
		{"delete the pod", deletePod},
		{"suspend and resume", suspend},
	}
}

// wreak breaks one thing after the other until the time is over. Each is broken at least once
// where the time allows it.
func wreak(t *testing.T, ctx context.Context, random *rand.Rand, sessions []*session) map[string]int {
	t.Helper()
	done := map[string]int{}
	all := havocs()
	for i := 0; ctx.Err() == nil; i++ {
		if i%len(all) == 0 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		h, s := all[i%len(all)], sessions[random.IntN(len(sessions))]
		t.Logf("%s: %s (%s)", time.Now().Format(time.TimeOnly), h.name, s.name)
		// What was begun is brought to its end.
		if err := h.do(context.WithoutCancel(ctx), s); err != nil {
			t.Logf("    left out: %v", err)
		} else {
			done[h.name]++
		}
		sleep(ctx, time.Duration(1+random.IntN(7))*time.Second)
	}
	return done
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
	if err := cluster.Signal(uid, syscall.SIGSTOP, "agent", "run", "--session-uid"); err != nil {
		return err
	}
	sleep(ctx, 8*time.Second)
	return cluster.Signal(uid, syscall.SIGCONT, "agent", "run", "--session-uid")
}

// killPart kills a program of the cluster and has it started again.
func killPart(name string) func(context.Context, *session) error {
	return func(ctx context.Context, _ *session) error {
		err := cluster.SignalPart(*state, name, syscall.SIGKILL)
		sleep(ctx, 2*time.Second)
		return errors.Join(err, up(ctx)) // also where it has ended by itself
	}
}

func up(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join(here, root, "hack/kube"), "run", ".", "up")
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("starting the cluster again: %w: %s", err, out)
	}
	return nil
}

// dropLink lets nothing through to an agent for a while.
func dropLink(ctx context.Context, s *session) error {
	uid, err := s.podUID(ctx)
	if err != nil {
		return err
	}
	pids := cluster.Processes(uid, "agent", "run", "--session-uid")
	if len(pids) != 1 {
		return fmt.Errorf("the agent does not run")
	}
	rule := func(what string) error {
		return exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pids[0]), "-n",
			"iptables", what, "INPUT", "-p", "tcp", "--dport", "8443", "-j", "DROP").Run()
	}
	if err := rule("-I"); err != nil {
		return err
	}
	sleep(ctx, 35*time.Second) // longer than it takes to call the agent unreachable
	if len(cluster.Processes(uid, "agent", "run", "--session-uid")) == 0 {
		return nil // and with the pod the rule went
	}
	return rule("-D")
}

// fillDisk leaves no byte on the volume of a session for a while.
func fillDisk(ctx context.Context, s *session) error {
	if s.disk == "" {
		return fmt.Errorf("it has no volume of its own")
	}
	name := filepath.Join(s.disk, "workspace", "ballast")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	sleep(ctx, 10*time.Second)
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close(), os.Remove(name))
	}
	return errors.Join(f.Close(), os.Remove(name))
}

func deletePod(ctx context.Context, s *session) error {
	if s.disk == "" {
		return fmt.Errorf("its log would end with its pod")
	}
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
	if s.disk == "" {
		return fmt.Errorf("its log would end with its pod")
	}
	if err := insist(ctx, func() error { return s.patch(ctx, `{"spec":{"suspend":true}}`) }); err != nil {
		return err
	}
	sleep(ctx, 6*time.Second)
	return insist(ctx, func() error { return s.patch(ctx, `{"spec":{"suspend":false}}`) })
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

// insist tries again for as long as the apiserver is away.
func insist(ctx context.Context, do func() error) (err error) {
	for range 300 {
		if err = do(); err == nil || ctx.Err() != nil {
			return err
		}
		sleep(ctx, time.Second)
	}
	return err
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(settled); ; time.Sleep(250 * time.Millisecond) {
		ok, now := done()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s; now: %s", what, now)
		}
	}
}
