// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
	"github.com/agentsession-dev/operator/test/integration/controllers/agenttest"
)

// crowd is several sessions, each with an agent of its own.
type crowd struct {
	links  *Links
	agents map[string]*agenttest.Agent // by address
	ends   []Endpoint
	woken  chan types.NamespacedName
}

func newCrowd(t *testing.T, n, keep int) *crowd {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	ca, err := authority.Ensure(t.Context(), c, c, "operator", authority.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &crowd{agents: map[string]*agenttest.Agent{}, woken: make(chan types.NamespacedName, 1000)}
	for i := range n {
		id := agenttest.Identity{SessionUID: fmt.Sprintf("uid-%d", i), Incarnation: incarnation, PodUID: fmt.Sprintf("pod-%d", i)}
		files, err := ca.Agent(ca.Hash(), id.SessionUID, id.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		e := Endpoint{
			Session:    types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("session-%d", i)},
			SessionUID: id.SessionUID, Incarnation: id.Incarnation, PodUID: id.PodUID, Address: fmt.Sprintf("agent-%d:8443", i),
		}
		b.agents[e.Address], b.ends = agenttest.Start(t, id, files), append(b.ends, e)
	}
	b.links = New(t.Context(), Options{
		Credentials: sole{ca}, Keep: keep,
		Wake: func(n types.NamespacedName) { b.woken <- n },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, b.agents[address].Addr)
		},
	})
	return b
}

// switchTo switches one session and writes down what its agent says, until it is idle.
func (b *crowd) switchTo(t *testing.T, i int, mode policy.Mode, generation int64) {
	t.Helper()
	e := b.ends[i]
	d := desired(mode, generation)
	d.SessionUID, d.Stamp.SessionUID = e.SessionUID, e.SessionUID
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		o, fresh := b.links.Set(t.Context(), e, d)
		b.links.Wrote(e, o.Observed)
		if fresh && o.Observed.Applied.Stamp.SessionGeneration == generation {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("session %d is not switched: %+v", i, o)
		}
	}
}

func (b *crowd) held(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); b.links.Held() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d links are held, want %d", b.links.Held(), want)
		}
	}
}

// Those that were switched last keep their connection, as many as are allowed; who has lost
// it is dialled and is among them again.
func TestTheAgentsToldLastAreKept(t *testing.T) {
	b := newCrowd(t, 5, 2)
	for i := range b.ends {
		b.switchTo(t, i, policy.ReadOnly, 1) // the first contact is a visit
		b.switchTo(t, i, policy.WorkspaceWrite, 2)
	}
	b.held(t, 2)
	for i, e := range b.ends {
		b.links.mu.Lock()
		k := b.links.links[e.Session]
		b.links.mu.Unlock()
		k.mu.Lock()
		if want := i >= 3; k.running != want {
			t.Errorf("session %d is held: %v, want %v", i, k.running, want)
		}
		k.mu.Unlock()
	}
	b.switchTo(t, 0, policy.ReadOnly, 3)
	b.held(t, 2)
	for _, e := range b.ends {
		b.links.Forget(e.Session)
	}
	b.held(t, 0)
	if n := b.links.options.kept.links.Len(); n != 0 {
		t.Errorf("%d links have a place although all are forgotten", n)
	}
}

// A busy agent needs no place.
func TestABusyAgentTakesNobodysPlace(t *testing.T) {
	b := newCrowd(t, 2, 1)
	for i := range b.ends {
		b.switchTo(t, i, policy.ReadOnly, 1)
	}
	b.agents[b.ends[0].Address].Update(func(o *wire.Observed) { o.Activity.State = wire.InTurn })
	b.switchTo(t, 0, policy.WorkspaceWrite, 2)
	b.switchTo(t, 1, policy.WorkspaceWrite, 2)
	b.held(t, 2)
}
