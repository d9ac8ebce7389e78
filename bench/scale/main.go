// SPDX-License-Identifier: Apache-2.0

// Command scale runs the operator as it is, beside a real apiserver, with thousands of
// sessions whose kubelet and agents are played by this process, and prints what they cost
// the operator: memory, CPU, writes and reconciles; while they are created, while they are
// idle, in a storm of switches and after a restart. It decides nothing about how much is good.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

// kept is how many idle agents the operator may listen to.
const kept = 256

type options struct {
	sessions  int
	namespace int
	idle      time.Duration
	workers   int
	rate      int
	verbose   bool
}

func main() {
	var o options
	flag.IntVar(&o.sessions, "sessions", 5000, "how many sessions")
	flag.IntVar(&o.namespace, "namespaces", 20, "in how many namespaces")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long to watch them do nothing")
	flag.IntVar(&o.workers, "workers", 8, "how many clients create and patch at once")
	flag.IntVar(&o.rate, "rate", 20, "how many to switch a second, the second time")
	flag.BoolVar(&o.verbose, "v", false, "show the operator's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := start(ctx, dir, o)
	if err != nil {
		return err
	}
	defer w.stop()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "PHASE\tTIME\tMEMORY\tCPU\tRECONCILES\tWRITES\tEVENTS\tLEASES\tHELD\tFROM PATCH TO APPLIED")
	for _, phase := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{fmt.Sprintf("create %d", o.sessions), w.create},
		{"become idle", w.settle},
		{"idle", w.idle},
		{"switch all", w.switchAll},
		{"become idle again", w.settle},
		{fmt.Sprintf("switch %d a second", o.rate), w.switchEvenly},
		{"label one namespace", w.narrow},
		{"restart of the operator", w.restart},
		{"idle again", w.idle},
	} {
		fmt.Fprintln(os.Stderr, "measuring:", phase.name)
		before, begin := w.measure(), time.Now()
		note, err := phase.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		now := w.measure()
		d := now.since(before)
		fmt.Fprintf(out, "%s\t%s\t%.0f MiB\t%.1fs\t%.0f\t%d\t%d\t%d\t%d\t%s\n", phase.name, time.Since(begin).Round(100*time.Millisecond),
			now.rss, d.cpu, d.reconciles, d.writes, d.events, d.leases, w.fleet.Connections.Load(), note)
		_ = out.Flush()
	}
	return nil
}
