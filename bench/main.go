// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the project claims on the cluster at hand, each
// figure beside what a user would otherwise do, in the same run. Start it with make bench.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/test/cluster"
)

const namespace = "agentsession-bench" // of sessions and pods, and of the model

//go:embed script.yaml
var script string

// row is one figure. Ratio is value divided by what it is compared to.
type row struct {
	ID         string  `json:"id"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	ComparedTo string  `json:"compared_to"`
	Other      float64 `json:"compared_value"`
	Ratio      float64 `json:"ratio"`
}

type bench struct {
	cluster.Cluster
	setup cluster.Setup
	api   client.WithWatch
	rows  []row

	auditLog string
	idle     time.Duration
}

func main() {
	b := &bench{setup: cluster.Setup{Root: "."}}
	out := flag.String("out", "bench/results.json", "where the rows are written")
	flag.StringVar(&b.Context, "context", "", "context of the kubeconfig (default: the current one)")
	flag.StringVar(&b.setup.Repository, "repository", "agentsession.dev", "where the cluster finds the images")
	flag.StringVar(&b.setup.Tag, "tag", "", "tag of the images")
	flag.StringVar(&b.auditLog, "audit-log", "", "the apiserver's audit log; without it writes are not counted")
	flag.DurationVar(&b.idle, "idle", 2*time.Minute, "for how long an unchanged world is watched")
	only := flag.String("only", "", "measure only the parts whose name contains this, and write no file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, out, only string) (err error) {
	if b.api, err = b.Client(); err != nil {
		return err
	}
	if err := b.InstallOperator(ctx, b.setup); err != nil {
		return err
	}
	if err := b.InstallModel(ctx, b.setup, namespace, script); err != nil {
		return err
	}
	defer func() {
		_, _ = b.Kubectl(context.WithoutCancel(ctx), "delete", "namespace", namespace, "--wait=false")
	}()
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"a confined call against plain fork and exec", b.call},
		{"the memory of an agent", b.memory},
		{"apply to Ready against a bare pod", b.start},
		{"a switch against a downward-API file and a new pod", b.switches},
		{"a label on the namespace of 20 sessions", b.narrow},
		{"prompt tokens that a switch leaves uncached", b.tokens},
		{"writes to the apiserver", b.writes},
	} {
		if !strings.Contains(part.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", part.name)
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	b.print()
	if only != "" {
		return nil
	}
	text, err := json.MarshalIndent(b.rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func (b *bench) add(id string, value float64, unit, comparedTo string, other float64) {
	b.rows = append(b.rows, row{id, value, unit, comparedTo, other, value / other})
}

func (b *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tVALUE\tUNIT\tCOMPARED TO\tITS VALUE\tRATIO")
	for _, r := range b.rows {
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%.2f\t%.3f\n", r.ID, r.Value, r.Unit, r.ComparedTo, r.Other, r.Ratio)
	}
	_ = w.Flush()
}
