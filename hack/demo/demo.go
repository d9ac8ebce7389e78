// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/test/cluster"
)

const (
	system    = cluster.System
	namespace = "agentsession-demo"
	dir       = "hack/demo/manifests/"
)

//go:embed manifests
var manifests embed.FS

// demo holds what the steps hand on to one another.
type demo struct {
	options
	cluster.Cluster
	client client.WithWatch

	failures int
	claims   []string
}

type step struct {
	title string
	do    func(context.Context) error
}

func newDemo(o options) (*demo, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, errors.New("start this from the root of the repository, with make demo")
	}
	d := &demo{options: o, Cluster: cluster.Cluster{Context: o.context, Echo: os.Stdout}}
	var err error
	if d.client, err = d.Client(); err != nil {
		return nil, fmt.Errorf("%w; is the cluster up?", err)
	}
	return d, nil
}

// lock keeps two demos from working in the same namespace at once.
func (d *demo) lock() (func(), error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "agentsession-demo.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.New("another demo is running on this machine; wait until it has ended")
	}
	return func() { _ = f.Close() }, nil
}

// claim notes whether a claim of the demo holds.
func (d *demo) claim(holds bool, format string, args ...any) {
	mark := "\033[32mok\033[0m  "
	if !holds {
		mark = "\033[31mNOT\033[0m "
		d.failures = 1
	}
	line := mark + fmt.Sprintf(format, args...)
	d.claims = append(d.claims, line)
	fmt.Println("  " + line)
}

// quietly returns the same cluster without echo.
func (d *demo) quietly() cluster.Cluster { return cluster.Cluster{Context: d.Context} }

// explain shows what a person would look at when a step has failed.
func (d *demo) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"-n", namespace, "describe", "ags"},
		{"-n", system, "logs", "deploy/agentsession-manager", "--tail=20"},
	} {
		_, _ = d.Kubectl(ctx, args...) // it is shown; an error here is one more symptom
	}
}

func (d *demo) summary(took time.Duration) {
	fmt.Printf("\n\033[1m== What was shown, in %.0f s\033[0m\n", took.Seconds())
	for _, c := range d.claims {
		fmt.Println("  " + c)
	}
	fmt.Printf("\nLook around:\n%s", indentLines(d.lookAround,
		"kubectl -n "+namespace+" get ags -o wide",
		"kubectl -n "+namespace+" describe ags demo",
		"kubectl -n "+namespace+" logs demo-POD -f          # the event log as it is written",
		"kubectl explain agentsession.spec"))
	fmt.Printf("Clean up:\n%s", indentLines(
		"kubectl delete namespace "+namespace,
		"helm -n "+system+" uninstall agentsession",
		d.cleanUp))
}

func indentLines(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if l != "" {
			b.WriteString("    " + l + "\n")
		}
	}
	return b.String()
}
