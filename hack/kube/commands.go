// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsession-dev/operator/hack/kube/internal/cluster"
	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/host"
)

func runPackages(ctx context.Context, o options) error {
	if err := host.EnsurePath(); err != nil {
		return err
	}
	if missing := host.MissingPackages(); len(missing) > 0 {
		if err := requireRoot("installs the Debian packages " + strings.Join(missing, " ")); err != nil {
			return err
		}
	}
	return host.InstallPackages(ctx, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
}

func runBuild(ctx context.Context, o options) error {
	k, err := o.cluster(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "all programs of the cluster are in", k.BinDir)
	return nil
}

func runUp(ctx context.Context, o options) error {
	if err := host.EnsurePath(); err != nil {
		return err
	}
	if err := requireRoot("makes links, mounts and control groups"); err != nil {
		if missing := host.MissingPackages(); len(missing) > 0 {
			err = fmt.Errorf("%w (it will also install the Debian packages %s)", err, strings.Join(missing, " "))
		}
		return err
	}
	k, err := o.cluster(ctx)
	if err != nil {
		return err
	}
	if err := k.Up(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "use it: export KUBECONFIG=%s PATH=%s:$PATH\n", k.Kubeconfig(), k.BinDir)
	return nil
}

func runDown(_ context.Context, o options) error {
	if err := host.EnsurePath(); err != nil {
		return err
	}
	if err := requireRoot("removes links, mounts and control groups"); err != nil {
		return err
	}
	k, err := cluster.Open(o.StateDir, os.Stderr)
	if errors.Is(err, config.ErrNoCluster) {
		fmt.Fprintln(os.Stderr, "there is no cluster in", o.StateDir)
		return nil
	}
	if err != nil {
		return err
	}
	return k.Down(o.keep)
}

func runStatus(ctx context.Context, o options) error {
	k, err := cluster.Open(o.StateDir, os.Stdout)
	if errors.Is(err, config.ErrNoCluster) {
		return fmt.Errorf("%w: there is none in %s", cluster.ErrNotRunning, o.StateDir)
	}
	if err != nil {
		return err
	}
	return k.Status(ctx)
}

func runLoad(ctx context.Context, o options) error {
	if len(o.args) == 0 {
		return errors.New("load needs the names of image archives")
	}
	if err := requireRoot("writes to containerd's socket"); err != nil {
		return err
	}
	k, err := cluster.Open(o.StateDir, os.Stderr)
	if err != nil {
		return err
	}
	var files []string
	for _, name := range o.args {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		files = append(files, path)
	}
	return k.Load(ctx, files)
}

func runKubeconfig(_ context.Context, o options) error {
	k, err := cluster.Open(o.StateDir, os.Stderr)
	if err != nil {
		return fmt.Errorf("%w: start one with up", err)
	}
	fmt.Println(k.Kubeconfig())
	return nil
}

func runEnv(_ context.Context, o options) error {
	plan, err := o.plan()
	if err != nil {
		return err
	}
	if !plan.Done() {
		return errors.New("the programs are not built yet: run build or up first")
	}
	fmt.Printf("export KUBEBUILDER_ASSETS=%q\n", plan.BinDir())
	fmt.Printf("export KUBECONFIG=%q\n", o.Kubeconfig())
	fmt.Printf("export PATH=%q:\"$PATH\"\n", plan.BinDir())
	return nil
}
