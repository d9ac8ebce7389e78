// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentsession-dev/operator/hack/kube/internal/host"
	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
	"github.com/agentsession-dev/operator/hack/kube/internal/process"
)

// grace is how long a program may take to end by itself.
const grace = 5 * time.Second

// Down stops the cluster and removes what it left on the machine; with keep, its
// objects, images and certificates stay for the next start.
func (k *Cluster) Down(keep bool) error {
	unlock, err := k.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.stopAll(); err != nil {
		return err
	}
	if keep {
		k.say("the cluster is stopped; its objects and images are kept in %s", k.StateDir)
		return nil
	}
	if err := host.RemoveState(k.Config); err != nil {
		return fmt.Errorf("removing the cluster's state: %w", err)
	}
	k.say("the cluster is stopped and %s is removed", k.StateDir)
	return nil
}

func (k *Cluster) stopAll() error {
	return errors.Join(k.stop(parts.All(k.Config)), host.Clean(k.Config))
}

// stop ends parts stage by stage, the last started first: nobody is left that
// would start again what is being cleaned up.
func (k *Cluster) stop(wanted []parts.Part) error {
	for _, stage := range slices.Backward(parts.Stages(k.Config)) {
		var g errgroup.Group
		for _, p := range stage {
			if !slices.ContainsFunc(wanted, func(w parts.Part) bool { return w.Name == p.Name }) {
				continue
			}
			g.Go(func() error {
				if err := process.Read(p.PIDFile(k.Config)).Stop(grace); err != nil {
					return fmt.Errorf("stopping %s: %w", p.Name, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}
