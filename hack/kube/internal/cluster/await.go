// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
	"github.com/agentsession-dev/operator/hack/kube/internal/process"
)

const (
	patience = 90 * time.Second // for one thing; a small machine under load takes half of it
	pause    = 50 * time.Millisecond
)

func (k *Cluster) awaitAPIServer(ctx context.Context) error {
	return k.poll(ctx, k.part("kube-apiserver"), "kube-apiserver", func(ctx context.Context) error {
		api, err := k.api()
		if err != nil {
			return err
		}
		return api.get(ctx, "/readyz", nil)
	})
}

// await returns when everything works: each part by its own account, names of
// services, and a node that takes pods and said so after began.
func (k *Cluster) await(ctx context.Context, began time.Time) error {
	api, err := k.api()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return k.poll(ctx, k.part("kube-apiserver"), "cluster DNS service", k.applyManifests(api))
	})
	for _, p := range parts.All(k.Config) {
		if p.Health != "" {
			g.Go(func() error {
				return k.poll(ctx, p, p.Name, func(ctx context.Context) error { return healthy(ctx, p.Health) })
			})
		}
	}
	g.Go(func() error {
		return k.poll(ctx, k.part("kubelet"), "node", func(ctx context.Context) error { return k.nodeReady(ctx, began) })
	})
	g.Go(func() error {
		return k.poll(ctx, k.part("kube-controller-manager"), "service accounts", func(ctx context.Context) error {
			return api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
		})
	})
	return g.Wait()
}

// poll asks until there is no error. It ends early when the part, or another that
// it depends on, has ended: then no answer will come.
func (k *Cluster) poll(ctx context.Context, p parts.Part, what string, ask func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		err := k.attempt(ctx, ask)
		if err == nil {
			if !k.quiet {
				k.say("  %s ready", what)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, need := range []parts.Part{p, k.part("etcd"), k.part("kube-apiserver"), k.part("containerd")} {
			if !process.Read(need.PIDFile(k.Config)).Alive() {
				return k.failure(need, "ended")
			}
		}
		if time.Now().After(deadline) {
			return k.failure(p, fmt.Sprintf("was not ready after %s: %v", patience, err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (k *Cluster) attempt(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return ask(ctx)
}

// node is what we read of a Node.
type node struct {
	Spec struct {
		Taints []struct{ Key, Effect string }
	}
	Status struct {
		Conditions []struct {
			Type, Status, Reason, Message string
			LastHeartbeatTime             time.Time
		}
	}
}

// nodeReady is nil when the node takes pods and has said so since began: what an
// earlier run has said is still in the store.
func (k *Cluster) nodeReady(ctx context.Context, began time.Time) error {
	api, err := k.api()
	if err != nil {
		return err
	}
	var n node
	if err := api.get(ctx, "/api/v1/nodes/"+k.Name, &n); err != nil {
		return err
	}
	return n.ready(began)
}

func (n node) ready(began time.Time) error {
	for _, t := range n.Spec.Taints {
		if t.Effect == "NoSchedule" || t.Effect == "NoExecute" {
			return fmt.Errorf("the node has the taint %s:%s", t.Key, t.Effect)
		}
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != "Ready":
		case c.Status != "True":
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		case c.LastHeartbeatTime.Before(began):
			return errors.New("the kubelet has not reported since the start")
		default:
			return nil
		}
	}
	return errors.New("the node has no condition Ready")
}
