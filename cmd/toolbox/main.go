// SPDX-License-Identifier: Apache-2.0

// Command toolbox runs the tools of a session: as the first process of a tools
// container, and as the parts of every call.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/conformance/attempt"
	"github.com/agentsession-dev/operator/internal/runner/tools"
)

// Init restricts the thread that later forks: main must never leave it.
func init() { runtime.LockOSThread() }

const usage = `usage: toolbox COMMAND

  supervise    run as the first process of a tools container
  fetch        fill the workspace before the tools start
  conformance  try everything that the modes forbid, here, and report
  doctor       say in plain words what would be enforced on this node

The commands init, tool and attempt are parts of a call, credential is one of a fetch, and fixtures one of the
conformance suite in a session.
`

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch command, rest := args[0], args[1:]; command {
	case "init":
		return call.Init()
	case "tool":
		return runTool(rest)
	case "supervise":
		return supervise(rest)
	case "fetch":
		return fetch(rest)
	case "credential":
		return credential(rest)
	case "doctor":
		return doctor(rest)
	case "conformance":
		return conform(rest)
	case "fixtures":
		if err := conformance.Obey(os.Stdin, os.Stdout); err != nil {
			return troubled(err)
		}
		return 0
	case "attempt":
		return attempt.Run(rest, os.Stdout)
	default:
		fmt.Fprintf(os.Stderr, "toolbox: there is no command %q\n\n%s", command, usage)
		return 2
	}
}

// runTool is what a call's child becomes for the tools that are built in. The thread
// that it runs on came through exec: all of the process is confined.
func runTool(args []string) int {
	if len(args) == 1 && args[0] == call.Selftest {
		return 0
	}
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "toolbox tool: a name, a workspace and a version are needed")
		return call.FailedStatus
	}
	return tools.Run(args[0], args[1], args[2], os.Stdin, os.Stdout)
}
