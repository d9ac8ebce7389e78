// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/internal/policy"
)

// An agent that is not reached is trouble at once, and unreachable after 30 s, not before: then the
// session is woken to say so.
func TestAnAgentIsUnreachableAfterHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().Build()
		ca, err := authority.Ensure(t.Context(), c, c, "operator", authority.Options{})
		if err != nil {
			t.Fatal(err)
		}
		woken := make(chan time.Time, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		links := New(ctx, Options{
			Credentials: sole{ca},
			Wake:        func(types.NamespacedName) { woken <- time.Now() },
			Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			},
		})
		start := time.Now()
		o, fresh := links.Set(ctx, endpoint(), desired(policy.ReadOnly, 1))
		if fresh || o.Unreachable || o.Trouble == "" {
			t.Errorf("at once: %+v, fresh %t", o, fresh)
		}
		time.Sleep(unreachableAfter - time.Second - time.Since(start))
		if o := links.Last(endpoint()); o.Unreachable {
			t.Errorf("after 29 s: %+v", o)
		}
		time.Sleep(time.Minute)
		if o := links.Last(endpoint()); !o.Unreachable {
			t.Errorf("after a minute and a half: %+v", o)
		}
		select {
		case at := <-woken:
			if at.Sub(start) < unreachableAfter {
				t.Errorf("woken after %s", at.Sub(start))
			}
		default:
			t.Error("nobody was woken")
		}
	})
}
