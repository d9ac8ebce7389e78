// SPDX-License-Identifier: Apache-2.0

// Command kube runs a Kubernetes cluster of one node on this machine, from the
// sources that its module pins: for the demo, for tests on a real cluster, and for
// whoever works on the operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentsession-dev/operator/hack/kube/internal/build"
	"github.com/agentsession-dev/operator/hack/kube/internal/cluster"
	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/host"
)

const usage = `kube runs a Kubernetes cluster of one node on this machine.

usage: kube COMMAND [FLAGS]

  packages      install the Debian packages that the cluster needs (up does it too)
  build         build the cluster's programs into the cache (up does it too)
  up            start the cluster, or what of it does not run
  down          stop it and remove what it left (--keep: but not objects and images)
  status        say what runs; exit 1 unless everything does
  load FILE...  put image archives (OCI or docker-archive) on the node
  kubeconfig    print the path of the kubeconfig
  env           print what a shell needs: eval "$(kube env)"

Each flag can also be set in the environment: --node-ip as AGENTSESSION_KUBE_NODE_IP.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options are the flags beside those of the cluster.
type options struct {
	config.Config
	cache, source string
	keep          bool
	args          []string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			return nil
		}
		return fmt.Errorf("unknown command %q", args[0])
	}
	o, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	return command(ctx, o)
}

var commands = map[string]func(context.Context, options) error{
	"packages": runPackages, "build": runBuild, "up": runUp, "down": runDown, "status": runStatus,
	"load": runLoad, "kubeconfig": runKubeconfig, "env": runEnv,
}

func parse(command string, args []string) (options, error) {
	o := options{Config: config.Default()}
	fs := flag.NewFlagSet("kube "+command, flag.ContinueOnError)
	o.Bind(fs)
	fs.StringVar(&o.cache, "cache", "", "directory of built programs (default $AGENTSESSION_CACHE/kube, or the user's cache directory)")
	fs.StringVar(&o.source, "source", "", "directory of this module's sources (default: found from the working directory)")
	if command == "down" {
		fs.BoolVar(&o.keep, "keep", false, "keep objects, images and certificates for the next up")
	}
	if err := config.FromEnv(fs, os.LookupEnv); err != nil {
		return o, err
	}
	fs.SetOutput(io.Discard) // the error is printed once, without all the flags
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(os.Stderr)
			fs.Usage()
		}
		return o, err
	}
	o.args = fs.Args()
	if len(o.args) > 0 && command != "load" {
		return o, fmt.Errorf("%s takes no arguments, only flags: %s", command, strings.Join(o.args, " "))
	}
	return o, o.Validate()
}

func (o options) plan() (build.Plan, error) {
	var err error
	if o.source == "" {
		if o.source, err = build.FindSource(); err != nil {
			return build.Plan{}, err
		}
	}
	if o.cache == "" {
		if o.cache, err = build.DefaultCache(); err != nil {
			return build.Plan{}, err
		}
	}
	if o.cache, err = filepath.Abs(o.cache); err != nil {
		return build.Plan{}, err
	}
	return build.NewPlan(o.source, o.cache)
}

// cluster is the one that the flags describe, built.
func (o options) cluster(ctx context.Context) (*cluster.Cluster, error) {
	plan, err := o.plan()
	if err != nil {
		return nil, err
	}
	if err := plan.Run(ctx, build.NewProgress(os.Stderr)); err != nil {
		return nil, err
	}
	return &cluster.Cluster{Config: o.Config, BinDir: plan.BinDir(), Out: os.Stderr}, nil
}

func requireRoot(why string) error {
	if host.IsRoot() {
		return nil
	}
	return errors.New("this needs root, because it " + why + ": run it with sudo")
}
