// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner"
	"github.com/agentsession-dev/operator/internal/wire"
)

func supervise(args []string) int {
	flags := flag.NewFlagSet("toolbox supervise", flag.ContinueOnError)
	s := runner.Supervisor{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags.StringVar(&s.Container, "container", "", "which tools container this is: tools-ro or tools-rw")
	flags.StringVar(&s.CtlDir, "ctl-dir", wire.CtlDir, "directory with the agent's lock and socket")
	flags.StringVar(&s.Workspace, "workspace", wire.Workspace, "the workspace, an absolute path")
	flags.DurationVar(&s.AgentTimeout, "agent-timeout", 30*time.Second, "how long to live without an agent")
	flags.Func("env", "`NAME=VALUE` in the environment of commands; as often as there are such", func(v string) error {
		s.Variables = append(s.Variables, v)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "toolbox supervise: %q is not a flag\n", flags.Arg(0))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := s.Run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "toolbox supervise: %v\n", err)
		return 1
	}
	return 0
}
