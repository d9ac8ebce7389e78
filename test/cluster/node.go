// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Processes are those of a pod whose command line contains all words. The node of the
// development cluster is this machine, so they can be seen and signalled here.
func Processes(podUID string, words ...string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil || podUID == "" {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err != nil || !strings.Contains(strings.ReplaceAll(string(cgroup), "_", "-"), podUID) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it has ended meanwhile
		}
		line := string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Signal signals the one process of a pod whose command line contains all words.
func Signal(podUID string, signal syscall.Signal, words ...string) error {
	pids := Processes(podUID, words...)
	if len(pids) != 1 {
		return fmt.Errorf("%d processes of pod %s have %v in their command line, want 1", len(pids), podUID, words)
	}
	return syscall.Kill(pids[0], signal)
}

// SignalPart signals a program of the development cluster, by the number that its starter
// noted down, and only if that still is its program.
func SignalPart(stateDir, name string, signal syscall.Signal) error {
	note, err := os.ReadFile(filepath.Join(stateDir, "pids", name+".json"))
	if err != nil {
		return err
	}
	var id struct{ PID int }
	if err := json.Unmarshal(note, &id); err != nil {
		return fmt.Errorf("reading the number of %s: %w", name, err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
	if program, _, _ := bytes.Cut(line, []byte{0}); err != nil || filepath.Base(string(program)) != name {
		return fmt.Errorf("process %d is not %s", id.PID, name)
	}
	return syscall.Kill(id.PID, signal)
}
