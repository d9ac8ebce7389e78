// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/agentsession-dev/operator/internal/policy"
)

// A thousand agents that cannot be reached are tried more and more seldom and never together;
// one of which something is heard is tried at once.
func TestAThousandUnreachableAgentsAreNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 1000
		var dials atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		l := New(ctx, Options{Credentials: noCredentials{}, Wake: func(types.NamespacedName) {},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}})
		at := func(i int) Endpoint {
			e := endpoint()
			e.Session.Name = fmt.Sprintf("session-%d", i)
			return e
		}
		for i := range agents {
			l.Set(ctx, at(i), desired(policy.ReadOnly, 1))
		}
		time.Sleep(5 * time.Minute)
		for range 300 {
			before := dials.Load()
			time.Sleep(time.Second)
			if n := dials.Load() - before; n > agents/10 {
				t.Fatalf("%d agents of %d were dialled within a second", n, agents)
			}
		}
		if o := l.Last(at(0)); !o.Unreachable {
			t.Errorf("an agent that never answered is not unreachable: %+v", o)
		}
		before := dials.Load()
		e := at(0)
		e.Pulse++
		l.Set(ctx, e, desired(policy.ReadOnly, 1))
		l.Set(ctx, at(1), desired(policy.WorkspaceWrite, 2))
		synctest.Wait()
		if n := dials.Load() - before; n < 2 {
			t.Errorf("%d dials after something was heard of two agents", n)
		}
		stop()
		synctest.Wait()
	})
}

// The last push of an operator that is no longer elected may come late. If it narrows, the
// agent takes it; then the operator that is elected says again what is wanted.
func TestAPolicyThatAnotherOperatorPutInForceIsReplaced(t *testing.T) {
	b := newBench(t, whole())
	settle(t, b, desired(policy.ReadOnly, 1))
	settle(t, b, desired(policy.WorkspaceWrite, 2))
	stale := b.agent.Pushes()[0]
	b.agent.Force(stale.Stamp, policy.Policy{Mode: policy.ReadOnly, Ceiling: policy.Unbounded})
	for deadline := time.Now().Add(20 * time.Second); ; {
		p, stamp := b.agent.Enforced()
		if p.Mode == policy.WorkspaceWrite && stamp.SessionGeneration == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent is left with %s of generation %d", p.Mode, stamp.SessionGeneration)
		}
		time.Sleep(time.Millisecond)
	}
	settle(t, b, desired(policy.WorkspaceWrite, 2))
}
