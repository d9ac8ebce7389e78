// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// resting is a bench whose links do not linger.
func resting(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, whole())
	b.links.options.Linger = time.Nanosecond
	return b
}

// untilRest says that all is written, as often as it takes until nobody listens any more.
func untilRest(t *testing.T, b *bench) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); b.links.Held() > 0; time.Sleep(time.Millisecond) {
		b.links.Wrote(endpoint(), b.links.Last(endpoint()).Observed)
		if time.Now().After(deadline) {
			t.Fatalf("the link does not rest; the agent said %+v", b.links.Last(endpoint()).Observed)
		}
	}
}

func TestAnIdleAgentIsLetGoAndDialledOnAChange(t *testing.T) {
	b := resting(t)
	settle(t, b, desired(policy.ReadOnly, 1))
	untilRest(t, b)
	o, fresh := b.links.Set(t.Context(), endpoint(), desired(policy.ReadOnly, 1))
	if !fresh || o.Observed == nil || o.Trouble != "" || b.links.Held() != 0 {
		t.Errorf("the same desired state wakes an agent at rest, or what is known is lost: %+v, fresh %v", o, fresh)
	}
	o = settle(t, b, desired(policy.WorkspaceWrite, 2))
	if o.Observed.Applied.Stamp.SessionGeneration != 2 {
		t.Errorf("the change did not arrive: %+v", o.Observed.Applied)
	}
	if n := len(b.dials); n != 2 {
		t.Errorf("%d dials, want 2", n)
	}
	untilRest(t, b)
}

// What the agent said and nobody has written holds the connection, and so does whatever
// may still change by itself.
func TestABusyAgentIsListenedTo(t *testing.T) {
	for name, busy := range map[string]func(*wire.Observed){
		"a turn":              func(o *wire.Observed) { o.Activity.State = wire.InTurn },
		"a call":              func(o *wire.Observed) { o.Activity.Calls = 1 },
		"a pause":             func(o *wire.Observed) { o.Activity.State = wire.Paused },
		"a sweep":             func(o *wire.Observed) { o.Unconfirmed = []string{wire.ToolsRW} },
		"a container away":    func(o *wire.Observed) { o.Containers[0].Connected = false },
		"another policy":      func(o *wire.Observed) { o.Applied.Digest = "other" },
		"a problem that ends": func(o *wire.Observed) { o.Problems = []wire.Problem{{Reason: wire.ToolsUnreachable}} },
	} {
		t.Run(name, func(t *testing.T) {
			b := resting(t)
			settle(t, b, desired(policy.ReadOnly, 1))
			b.agent.Update(busy)
			<-b.woken
			o := b.links.Last(endpoint()).Observed
			b.links.Wrote(endpoint(), o)
			b.agent.Update(func(o *wire.Observed) { o.Usage.Input = 7 }) // heard over the connection that is still there
			<-b.woken
			if o := b.links.Last(endpoint()).Observed; o.Usage.Input != 7 || b.links.Held() != 1 || len(b.dials) != 1 {
				t.Errorf("held %d, dials %d, usage %+v", b.links.Held(), len(b.dials), o.Usage)
			}
		})
	}
}

func TestAnIdleAgentIsHeldUntilWhatItSaidIsWritten(t *testing.T) {
	b := resting(t)
	d := desired(policy.ReadOnly, 1)
	d.Messages = []wire.Message{{UID: "m1", Content: "Hello?"}}
	settle(t, b, d)
	before := b.links.Last(endpoint()).Observed
	b.agent.Update(func(o *wire.Observed) { o.Messages[0].State, o.Messages[0].Reply = wire.Answered, "Hello." })
	<-b.woken
	b.links.Wrote(endpoint(), before)                            // an older word
	b.agent.Update(func(o *wire.Observed) { o.Usage.Input = 1 }) // is heard
	<-b.woken
	if b.links.Held() != 1 || b.links.Last(endpoint()).Observed.Messages[0].Reply != "Hello." {
		t.Fatal("the link rests although an answer is not written")
	}
	untilRest(t, b)
	if o := b.links.Last(endpoint()).Observed; len(o.Messages) != 0 {
		t.Error("answers that are written are kept in memory")
	}
}

func TestThePulseOfThePodHasAnAgentLookedAt(t *testing.T) {
	b := resting(t)
	settle(t, b, desired(policy.ReadOnly, 1))
	untilRest(t, b)
	b.agent.Update(func(o *wire.Observed) { o.Boot, o.Revision, o.Applied = 2, 1, nil }) // nobody hears it
	e := endpoint()
	e.Pulse = 1
	b.links.Set(t.Context(), e, desired(policy.ReadOnly, 1))
	<-b.woken
	if o := b.links.Last(e).Observed; o.Boot != 2 || o.Applied == nil {
		t.Errorf("an agent that was started anew has not been told again: %+v", o)
	}
	untilRest(t, b)
}

func TestAnAgentAtRestIsVisitedSlowly(t *testing.T) {
	b := resting(t)
	b.links.options.Visit = time.Millisecond
	d := desired(policy.ReadOnly, 1)
	settle(t, b, d)
	for len(b.agent.Pushes()) < 4 { // each visit tells the agent what is wanted
		b.links.Wrote(endpoint(), b.links.Last(endpoint()).Observed)
		select {
		case <-b.woken:
			b.links.Set(t.Context(), endpoint(), d)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestForgettingAnAgentAtRestLeavesNothing(t *testing.T) {
	b := resting(t)
	settle(t, b, desired(policy.ReadOnly, 1))
	untilRest(t, b)
	b.links.Forget(session)
	settle(t, b, desired(policy.ReadOnly, 1))
	b.links.Forget(session)
	if n := b.links.Held(); n != 0 {
		t.Errorf("%d links are held after the last was forgotten", n)
	}
}

type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// Each rest ends its connection, also the one whose poll was just given up.
func TestNoConnectionOutlivesItsLink(t *testing.T) {
	b := resting(t)
	var open atomic.Int64
	dial := b.links.options.Dial
	b.links.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		open.Add(1)
		return &countedConn{Conn: c, open: &open}, err
	}
	for i := range int64(50) {
		settle(t, b, desired(policy.Modes()[i%3], i+1))
		untilRest(t, b)
	}
	for deadline := time.Now().Add(10 * time.Second); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open although nobody is listened to", open.Load())
		}
	}
}
