// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
	"github.com/agentsession-dev/operator/hack/kube/internal/process"
)

// ErrNotRunning is what Status reports, beside what it prints, for a cluster that
// does not run as a whole.
var ErrNotRunning = errors.New("the cluster is not running")

// Status prints what runs and whether the node takes pods.
func (k *Cluster) Status(ctx context.Context) error {
	alive, dead := k.running()
	w := tabwriter.NewWriter(k.Out, 0, 0, 2, ' ', 0)
	for _, p := range parts.All(k.Config) {
		id := process.Read(p.PIDFile(k.Config))
		state := "not running"
		if id.Alive() {
			state = fmt.Sprintf("running\tpid %d", id.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, state, p.LogFile(k.Config))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	k.say("programs:   %s", k.BinDir)
	k.say("kubeconfig: %s (context %s)", k.Kubeconfig(), k.Name)
	if len(dead) > 0 {
		k.say("node:       unknown")
		if len(alive) > 0 {
			return fmt.Errorf("%s ended: start again with up: %w", names(dead), ErrNotRunning)
		}
		return ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := k.nodeReady(ctx, time.Time{}); err != nil {
		k.say("node:       not ready: %v", err)
		return fmt.Errorf("the node is not ready: %w", ErrNotRunning)
	}
	k.say("node:       %s is Ready", k.Name)
	return nil
}

// Load puts image archives into the node's containerd.
func (k *Cluster) Load(ctx context.Context, files []string) error {
	if !process.Read(k.part("containerd").PIDFile(k.Config)).Alive() {
		return fmt.Errorf("%w: start it with up", ErrNotRunning)
	}
	facts, err := k.facts()
	if err != nil {
		return err
	}
	return k.nodeImage(ctx, append([]string{"--snapshotter=" + facts.Snapshotter, "--"}, files...)...)
}
