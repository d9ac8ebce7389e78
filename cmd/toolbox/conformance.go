// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// conform tries everything that the modes forbid, in the container it runs in.
func conform(args []string) int {
	flags := flag.NewFlagSet("toolbox conformance", flag.ContinueOnError)
	workspace := flags.String("workspace", wire.Workspace, "a directory in which fixtures can be made")
	outside := flags.String("outside", "", "a directory of the user's own that is neither workspace nor temporary; without it what needs one is skipped")
	file := flags.String("report", "", "write a report into this file: .yaml, or .xml for JUnit")
	runtime := flags.String("runtime", "", "name of the container runtime, for the report")
	verbose := flags.Bool("v", false, "print what passed, too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *file != "" {
		if _, err := conformance.WriterFor(*file); err != nil {
			return troubled(err)
		}
	}
	if err := conformance.CheckHarmless(); err != nil {
		return troubled(err)
	}
	r, err := tryHere(*workspace, *outside)
	if err != nil {
		return troubled(err)
	}
	r.Where.Runtime = *runtime
	show(r, *verbose)
	if *file != "" {
		if err := conformance.Save(r, *file); err != nil {
			return troubled(err)
		}
	}
	if !r.Passed() {
		return 1
	}
	return 0
}

func tryHere(workspace, outside string) (conformance.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return conformance.Report{}, err
	}
	// Where it is the container's first process, it stands for the supervisor.
	if err := sandbox.Hide(); err != nil {
		return conformance.Report{}, err
	}
	local := conformance.NewLocal(workspace)
	defer local.Close()
	at := local.Here(self)
	at.Outside = outside
	if err := at.CanPrepare(); err != nil {
		return conformance.Report{}, fmt.Errorf("fixtures cannot be made in %s (run this in %s): %w", workspace, wire.ToolsRW, err)
	}
	where := conformance.Where{Container: wire.ToolsRW, Enforcement: runner.Probe(call.Waiter{}, workspace)}.Here()
	findings, err := conformance.Run(local, at, policy.Modes()...)
	r := conformance.Report{Where: where, Findings: findings}
	if err != nil {
		r.Trouble = err.Error()
	}
	return r, nil
}

func show(r conformance.Report, verbose bool) {
	e := r.Where.Enforcement
	fmt.Printf("kernel %s, Landlock ABI %d, enforcement %s, user %d\n", r.Where.Kernel, e.LandlockABI, e.Level, r.Where.User)
	for _, f := range r.Findings {
		if verbose || f.Verdict != conformance.Pass {
			fmt.Printf("%-4s  %-18s  %s  %s\n", f.Verdict, f.Mode, f.Row, f.Why)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.Count(conformance.Pass), r.Count(conformance.Fail), r.Count(conformance.Skip))
	if r.Trouble != "" {
		fmt.Printf("the suite could not go on: %s\n", r.Trouble)
	}
}

func troubled(err error) int {
	fmt.Fprintf(os.Stderr, "toolbox conformance: %v\n", err)
	return 1
}
