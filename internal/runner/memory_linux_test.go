// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"testing"
)

// What the kernel writes, in either version of control groups, is read.
func TestProcessesEndedForWantOfMemoryAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       uint64
	}{
		"version 2":               {"memory.events", "low 0\nhigh 0\nmax 41\noom 2\noom_kill 3\noom_group_kill 0\n", 3},
		"version 1":               {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7},
		"a kernel without counts": {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0},
		"no number":               {"memory.events", "oom_kill many\n", 0},
		"no control groups":       {"other", "oom_kill 1\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, tc.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := outOfMemory(dir); got != tc.want {
				t.Errorf("outOfMemory() = %d, want %d", got, tc.want)
			}
		})
	}
}
