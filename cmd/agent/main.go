// SPDX-License-Identifier: Apache-2.0

// Command agent is the loop of one session, in its pod. It decides nothing itself: see
// internal/agent. It executes nothing: tools run in other containers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const usage = `Usage:
  agent run [flags]                        run the session; see agent run -h
  agent install --from FILE --to FILE      put the toolbox where the tools containers find it
  agent log verify DIR                     check the chain of an event log, and that it gives every request that was sent
  agent log show [--from SEQ] [--width N] DIR   print it for people
  agent log export DIR                     print its lines as they are
  agent version
`

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "agent: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("a command is missing")
	}
	switch args[0] {
	case "run":
		return runAgent(args[1:], stdout, stderr)
	case "install":
		return runInstall(args[1:], stderr)
	case "log":
		return runLog(args[1:], stdout, stderr)
	case "version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help", "-h", "--help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	fmt.Fprint(stderr, usage)
	return fmt.Errorf("there is no command %.40q", args[0])
}

// buildVersion is set by the linker for releases.
var buildVersion string

func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
