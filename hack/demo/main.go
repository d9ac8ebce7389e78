// SPDX-License-Identifier: Apache-2.0

// Command demo shows the main job on a real cluster, as a person would type
// it, and checks every claim that it makes. It exits with 1 if one does not hold.
// It expects images and programs to be in place: start it with make demo.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.context, "context", "", "context of the kubeconfig (default: the current one)")
	flag.StringVar(&o.repository, "repository", "agentsession.dev", "where the cluster finds the images")
	flag.StringVar(&o.tag, "tag", "", "tag of the images")
	flag.StringVar(&o.lookAround, "look-around", "", "how a person reaches the cluster, shown at the end")
	flag.StringVar(&o.cleanUp, "clean-up", "", "how a person removes the cluster, shown at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("the demo took more than 5 minutes"))
	defer cancel()
	os.Exit(run(ctx, o))
}

type options struct{ context, repository, tag, lookAround, cleanUp string }

func run(ctx context.Context, o options) int {
	started := time.Now()
	d, err := newDemo(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	unlock, err := d.lock()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	defer unlock()
	for _, s := range d.steps() {
		fmt.Printf("\n\033[1m== %s\033[0m\n", s.title)
		if err := s.do(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "\ndemo: %s: %v\n", s.title, err)
			d.explain(context.WithoutCancel(ctx))
			return 1
		}
	}
	d.summary(time.Since(started))
	return d.failures
}
