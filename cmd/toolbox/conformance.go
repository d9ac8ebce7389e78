// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/wire"
)

// conform tries everything that the modes forbid, in the container it runs in.
func conform(args []string) int {
	flags := flag.NewFlagSet("toolbox conformance", flag.ContinueOnError)
	workspace := flags.String("workspace", wire.Workspace, "a directory in which fixtures can be made")
	verbose := flags.Bool("v", false, "print what passed, too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	self, err := os.Executable()
	if err != nil {
		return troubled(err)
	}
	local := conformance.NewLocal(*workspace)
	defer local.Close()
	at := local.Here(self)
	if err := at.CanPrepare(); err != nil {
		return troubled(fmt.Errorf("fixtures cannot be made in %s (run this in %s): %w", *workspace, wire.ToolsRW, err))
	}
	findings, err := conformance.Run(local, at, policy.Modes()...)
	count := map[conformance.Verdict]int{}
	for _, f := range findings {
		count[f.Verdict]++
		if *verbose || f.Verdict != conformance.Pass {
			fmt.Printf("%-4s  %-18s  %s  %s\n", f.Verdict, f.Mode, f.Row, f.Why)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", count[conformance.Pass], count[conformance.Fail], count[conformance.Skip])
	if err != nil {
		return troubled(err)
	}
	return min(count[conformance.Fail], 1)
}

func troubled(err error) int {
	fmt.Fprintf(os.Stderr, "toolbox conformance: %v\n", err)
	return 1
}
