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
	fmt.Printf("No tool would run here: %s.\n", e.Detail)
	return 1
}
