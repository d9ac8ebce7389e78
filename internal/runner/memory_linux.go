// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryAccounts are where the kernel counts the processes that it ended because a control
// group had no memory left: as a container sees its own group of version 2, and of version 1
// (Linux 4.13 and later, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
var memoryAccounts = []string{"memory.events", "memory/memory.oom_control"}

// outOfMemory is how many processes of this container the kernel has ended because its memory
// was used up; 0 also where nobody counts.
func outOfMemory(cgroups string) uint64 {
	for _, name := range memoryAccounts {
		text, err := os.ReadFile(filepath.Join(cgroups, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				count, _ := strconv.ParseUint(n, 10, 64) // 0 for what is no number
				return count
			}
		}
	}
	return 0
}
