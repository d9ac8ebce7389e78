// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/agent/linkserver"
	"github.com/agentsession-dev/operator/internal/wire"
)

type runFlags struct {
	agent.Options
	listen, tlsDir, caHash string
}

func parseRun(args []string, stderr io.Writer) (runFlags, error) {
	var f runFlags
	var containers string
	set := flag.NewFlagSet("agent run", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.SessionUID, "session-uid", "", "UID of the session that this agent serves")
	set.StringVar(&f.Incarnation, "incarnation", "", "which pod of the session this is")
	set.StringVar(&f.caHash, "ca-hash", "", "SHA-256 of the operator's CA, in hex")
	set.StringVar(&containers, "containers", wire.ToolsRO+","+wire.ToolsRW, "the tools containers, separated by commas")
	set.StringVar(&f.listen, "listen", fmt.Sprintf(":%d", wire.Port), "address of the link")
	set.StringVar(&f.LogDir, "log-dir", wire.LogDir, "directory of the event log")
	set.StringVar(&f.CtlDir, "ctl-dir", wire.CtlDir, "directory that has a control directory for each tools container")
	set.StringVar(&f.tlsDir, "tls-dir", wire.TLSDir, "directory of the mounted link Secret")
	set.StringVar(&f.KeyFile, "model-key-file", filepath.Join(wire.ModelKeyDir, wire.ModelKeyFile), "file with the model's API key; none is sent where it does not exist")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	f.Containers = strings.Split(containers, ",")
	var missing []string
	for name, value := range map[string]string{"session-uid": f.SessionUID, "incarnation": f.Incarnation, "ca-hash": f.caHash} {
		if value == "" {
			missing = append(missing, "--"+name)
		}
	}
	switch {
	case len(missing) > 0:
		return f, fmt.Errorf("flags are missing: %s", strings.Join(missing, ", "))
	case set.NArg() > 0:
		return f, fmt.Errorf("%.40q is not a flag", set.Arg(0))
	}
	for _, c := range f.Containers {
		if c != wire.ToolsRO && c != wire.ToolsRW {
			return f, fmt.Errorf("--containers: %.40q is neither %s nor %s", c, wire.ToolsRO, wire.ToolsRW)
		}
	}
	return f, nil
}

// runAgent serves a session until it is told to end.
func runAgent(args []string, stdout, stderr io.Writer) error {
	f, err := parseRun(args, stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	// Where the class limits the agent's memory, the collector works harder before the kernel ends the agent.
	if _, err := memlimit.Set(); err != nil {
		log.Warn("The container's memory limit is not known", "error", err)
	}
	f.Log, f.Stdout, f.PodUID, f.Version = log, stdout, os.Getenv("POD_UID"), version()

	id, err := linkserver.LoadIdentity(f.tlsDir, f.caHash, f.SessionUID, f.Incarnation)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listening for the operator: %w", err)
	}
	defer listener.Close()
	a, err := agent.New(f.Options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- linkserver.Serve(ctx, listener, id, a, log)
	}()
	log.Info("The agent runs", "session", f.SessionUID, "incarnation", f.Incarnation, "listen", listener.Addr().String())
	err = a.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}
