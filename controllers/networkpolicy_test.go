// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/wire"
)

// boundMachine is a cluster with a session whose class has egress, and its pod.
func boundMachine(rt *rapid.T) (*machine, *v1alpha1.AgentSession) {
	m := newMachine(rt)
	edit(m.store, m.class(), func(c *v1alpha1.AgentSessionClass) {
		c.Spec = v1alpha1.AgentSessionClassSpec{
			Model:   v1alpha1.Model{DefaultName: "replay"},
			Ceiling: v1alpha1.Ceiling{MaxMode: v1alpha1.ModeReadOnly, MaxNetwork: v1alpha1.NetworkOpen},
			Egress:  egressOf("203.0.113.7/32", "0.0.0.0/0"),
		}
	})
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	s.Spec.ClassName = "standard"
	if err := m.create(s); err != nil {
		rt.Fatal(err)
	}
	m.lookAtAll()
	m.reconcile(m.r, nameOf(s))
	if m.pod(s) == nil || m.bound(s) == nil {
		rt.Fatal("there is no pod, or no policy")
	}
	return m, m.session("a")
}

// lookAtAll brings the cache up to date.
func (m *machine) lookAtAll() {
	for _, kind := range watched {
		for m.cache.behind(kind) {
			m.see(kind)
		}
	}
}

// A cache that still shows a policy which is gone does not bring a pod without one.
func TestAPolicyInABehindCacheIsNone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, s := boundMachine(rt)
		m.lookAtAll()
		for _, o := range []client.Object{m.bound(s), m.pod(s)} {
			m.remove(m.key(o))
		}
		m.kubelet()
		for m.cache.behind("Pod") {
			m.see("Pod")
		}
		m.reconcile(m.r, nameOf(s))
		if m.pod(s) == nil || m.bound(s) == nil || !m.cache.behind("NetworkPolicy") {
			rt.Fatal("there is no pod, or no policy, or the cache was not behind")
		}
	})
}

// The pod's reach is wide before the agent is told that the network is open, and narrow after it was told that
// it is not: what ends first is what the kernel lets the tools do.
func TestTheOrderOfPolicyAndAgent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, s := boundMachine(rt)
		m.kubelet()
		m.lookAtAll()
		m.reconcile(m.r, nameOf(s))
		var order []string
		m.links.pushed = func(link.Endpoint, wire.Desired) { order = append(order, "told") }
		m.r.Client.(*api).wrote = func(verb string, k objectKey, _ client.Object) error {
			if k.kind == "NetworkPolicy" {
				order = append(order, verb)
			}
			return nil
		}
		for _, tc := range []struct {
			network v1alpha1.NetworkAccess
			want    []string
		}{
			{v1alpha1.NetworkOpen, []string{"apply", "told"}},
			{v1alpha1.NetworkNone, []string{"told", "apply"}},
		} {
			order = nil
			edit(m.store, m.session("a"), func(s *v1alpha1.AgentSession) { s.Spec.Sandbox.Network = tc.network })
			m.lookAtAll()
			m.reconcile(m.r, nameOf(s))
			if diff := cmp.Diff(tc.want, order); diff != "" {
				rt.Fatalf("network %s (-want +got):\n%s", tc.network, diff)
			}
		}
	})
}
