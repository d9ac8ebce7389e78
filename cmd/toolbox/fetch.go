// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/source"
	"github.com/agentsession-dev/operator/internal/wire"
)

// fetch fills the workspace before any tool runs. Why it cannot is the termination message.
func fetch(args []string) int {
	flags := flag.NewFlagSet("toolbox fetch", flag.ContinueOnError)
	o := source.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	var git source.Git
	var files source.Files
	flags.StringVar(&o.Workspace, "workspace", wire.Workspace, "the directory to fill")
	flags.StringVar(&o.StateDir, "state-dir", wire.SourceDir, "directory that remembers what has been fetched")
	flags.StringVar(&git.URL, "git", "", "URL of a repository to clone")
	flags.StringVar(&git.Ref, "ref", "", "branch, tag or commit to check out; empty: the repository's HEAD")
	flags.StringVar(&git.Key, "credentials", "", "name of the mounted Secret with the repository's credentials")
	flags.StringVar(&git.KeyDir, "credentials-dir", wire.SourceKeyDir, "where it is mounted")
	flags.StringVar(&files.Name, "config-map", "", "name of the mounted ConfigMap to copy")
	flags.StringVar(&files.Dir, "config-map-dir", wire.SourceFilesDir, "where it is mounted")
	message := flags.String("termination-log", "/dev/termination-log", "file that takes the reason of a failure")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 || (git.URL == "") == (files.Name == "") {
		fmt.Fprintln(os.Stderr, "toolbox fetch: either --git or --config-map is needed, and nothing but flags")
		return 2
	}
	if git.Key == "" {
		git.KeyDir = ""
	}
	if git.URL != "" {
		o.Git = &git
	} else {
		o.Files = &files
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := source.Fetch(ctx, o)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "toolbox fetch: %v\n", err)
	if f, openErr := os.OpenFile(*message, os.O_WRONLY|os.O_TRUNC, 0); openErr == nil {
		_, _ = f.WriteString(err.Error())
		_ = f.Close()
	}
	trouble, ok := errors.AsType[*source.Trouble](err)
	switch {
	case !ok:
		return 1
	case trouble.Later:
		return wire.SourceUnavailable
	}
	return wire.SourceFailed
}

// credential answers git during a fetch.
func credential(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "toolbox credential: git names one operation")
		return 2
	}
	if err := source.Credential(args[0], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "toolbox credential: %v\n", err)
		return 1
	}
	return 0
}
