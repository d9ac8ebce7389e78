// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/agentsession-dev/operator/internal/runner"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/wire"
)

// meaning of the levels below Full.
var meaning = map[wire.Level]string{
	wire.LevelFiles: "Every sandbox mode confines files here. Calls run one at a time and there are no terminals: without\n" +
		"signal scopes only a sweep of the container can end a call. Classes with enforcement.minimum Files or Mount run here.",
	wire.LevelMount: "Only read-only runs here, by the read-only mount and the system-call filter, one call at a time.\n" +
		"Only classes with enforcement.minimum Mount run here.",
	wire.LevelNone: "No tool would run here.",
}

// doctor says what would be enforced where it runs.
func doctor(args []string) int {
	workspace := wire.Workspace
	if len(args) == 1 {
		workspace = args[0]
	}
	if _, err := os.Stat(workspace); err != nil {
		workspace = os.TempDir()
	}
	e := runner.Probe(call.Waiter{}, workspace)
	fmt.Printf("enforcement:  %s\n", e.Level)
	fmt.Printf("landlock ABI: %d\n", e.LandlockABI)
	fmt.Printf("layers:       %s\n", strings.Join(e.Layers, ", "))
	if e.Level == wire.LevelFull {
		fmt.Println("Every sandbox mode holds here: what a mode forbids was tried in each, and refused.")
		return 0
	}
	fmt.Println(meaning[e.Level])
	fmt.Printf("Why not more: %s.\n", e.Detail)
	return 1
}
