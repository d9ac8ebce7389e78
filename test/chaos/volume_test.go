// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// volumeMiB is the size of a volume: small enough to be filled.
	volumeMiB = 64
	// volumeMark is by what a mount of this test is known, also to a run after one that was killed.
	volumeMark = "agentsession-chaos"
)

// undo is what has to be mended on this machine when a signal ends the test, by what it mends.
var undo sync.Map // string -> func()

// mendOnSignal mends what is broken before a signal ends the test.
func mendOnSignal() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := <-c
		undo.Range(func(_, f any) bool { f.(func())(); return true })
		fmt.Fprintf(os.Stderr, "%v; volumes: %v\n", s, removeVolumes())
		os.Exit(1)
	}()
}

// removeVolumes unmounts every volume of this test, also those of a run that was killed.
func removeVolumes() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		// A volume is mounted here, and by the kubelet into each pod. Its own mounts it unmounts itself.
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != volumeMark || f[2] != "tmpfs" || strings.Contains(f[1], "/pods/") {
			continue
		}
		if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", f[1], err))
			continue
		}
		_ = os.Remove(f[1])
	}
	return errors.Join(errs...)
}

// mountVolume gives the session a volume of its own.
func mountVolume(t *testing.T, s *session, dir string) {
	t.Helper()
	s.disk = filepath.Join(dir, s.name)
	if err := os.MkdirAll(s.disk, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(volumeMark, s.disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0777", volumeMiB)); err != nil {
		t.Fatalf("mounting a volume (this needs root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(s.disk, syscall.MNT_DETACH) })
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: chaos-%s, labels: {chaos: volume}}
spec:
  capacity: {storage: %dMi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: chaos-%s
  local: {path: %s}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}]
`, s.name, volumeMiB, s.name, s.disk))
	t.Cleanup(func() {
		_, _ = kube.Kubectl(context.WithoutCancel(t.Context()), "delete", "pv", "chaos-"+s.name, "--ignore-not-found", "--wait=false")
	})
}

// workspaceOf is where the workspace of a session is on this machine; "" when it cannot be found now.
func (s *session) workspaceOf(ctx context.Context) string {
	if s.disk != "" {
		return filepath.Join(s.disk, "workspace")
	}
	uid, err := s.podUID(ctx)
	if err != nil {
		return ""
	}
	found, _ := filepath.Glob(filepath.Join(*state, "kubelet", "pods", uid, "volumes", "kubernetes.io~empty-dir", "*", "workspace"))
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// marks are what commands have left in a workspace.
func marks(workspace string) (string, error) {
	text, err := os.ReadFile(filepath.Join(workspace, "marks"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// fillDisk leaves no byte on the volume of a session for a while.
func fillDisk(ctx context.Context, s *session) error {
	if s.disk == "" {
		return errors.New("it has no volume of its own")
	}
	name := filepath.Join(s.disk, "workspace", "ballast")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	for end := time.Now().Add(10 * time.Second); errors.Is(err, syscall.ENOSPC) && time.Now().Before(end); {
		sleep(ctx, 20*time.Millisecond)
		for _, err = f.Write(chunk[:1]); err == nil; { // somebody gave something back
			_, err = f.Write(chunk)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// dropLink lets nothing through to an agent for a while.
func dropLink(ctx context.Context, s *session) error {
	uid, err := s.podUID(ctx)
	if err != nil {
		return err
	}
	pid, err := agentOf(uid)
	if err != nil {
		return err
	}
	rule := func(what string) error {
		return exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(pid), "-n",
			"iptables", what, "INPUT", "-p", "tcp", "--dport", "8443", "-j", "DROP").Run()
	}
	if err := rule("-I"); err != nil {
		return err
	}
	sleep(ctx, 35*time.Second) // longer than it takes to call the agent unreachable
	if _, err := agentOf(uid); err != nil {
		return nil // and with the pod the rule went
	}
	return rule("-D")
}
