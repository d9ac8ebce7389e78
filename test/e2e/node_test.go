// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kill9 ends the one process of a pod whose command line contains words. The node
// is this machine, so the pod's processes can be seen and signalled here.
func kill9(t *testing.T, podUID string, words ...string) {
	t.Helper()
	var pids []int
	for _, pid := range processesOf(t, podUID) {
		cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue // it has ended meanwhile
		}
		line := string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
		if containsAll(line, words) {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 1 {
		t.Fatalf("%d processes of pod %s have %v in their command line, want 1", len(pids), podUID, words)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func processesOf(t *testing.T, podUID string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && strings.Contains(strings.ReplaceAll(string(cgroup), "_", "-"), podUID) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

func podUID(t *testing.T, namespace, pod string) string {
	t.Helper()
	return must(t)(kube.Kubectl(t.Context(), "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}"))
}
