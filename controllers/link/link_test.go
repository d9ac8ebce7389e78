// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
	"github.com/agentsession-dev/operator/test/integration/controllers/agenttest"
)

const sessionUID, incarnation, podUID = "session-uid", "k2p7x9qd", "pod-uid"

var session = types.NamespacedName{Namespace: "ns", Name: "fix-build"}

// bench is an agent and the links that reach it.
type bench struct {
	agent *agenttest.Agent
	links *Links
	woken chan types.NamespacedName
	dials chan string
}

func newBench(t *testing.T, id agenttest.Identity) *bench {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	ca, err := authority.Ensure(t.Context(), c, c, "operator", authority.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Agent(ca.Hash(), id.SessionUID, id.Incarnation)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{agent: agenttest.Start(t, id, files), woken: make(chan types.NamespacedName, 100), dials: make(chan string, 100)}
	b.links = New(t.Context(), Options{
		Credentials: sole{ca},
		Wake:        func(n types.NamespacedName) { b.woken <- n },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			b.dials <- address
			return new(net.Dialer).DialContext(ctx, network, b.agent.Addr)
		},
	})
	return b
}

// sole are the credentials of an operator with one root, which every agent believes.
type sole struct{ a *authority.Authority }

func (s sole) Client(string) (*tls.Certificate, error) { return s.a.Client(s.a.Hash()) }
func (s sole) Pool(string) *x509.CertPool              { return s.a.Pool(s.a.Hash()) }

func whole() agenttest.Identity {
	return agenttest.Identity{SessionUID: sessionUID, Incarnation: incarnation, PodUID: podUID}
}

func endpoint() Endpoint {
	return Endpoint{Session: session, SessionUID: sessionUID, Incarnation: incarnation, PodUID: podUID, Address: "10.0.0.9:8443"}
}

func desired(mode policy.Mode, generation int64) wire.Desired {
	return wire.Desired{
		Wire: wire.Version, SessionUID: sessionUID, Incarnation: incarnation,
		Policy: string(policy.Encode(policy.Policy{Mode: mode, Ceiling: policy.Unbounded}).Bytes),
		Stamp:  policy.Stamp{SessionUID: sessionUID, SessionGeneration: generation},
	}
}

// settle calls Set until the answer is fresh; what makes it so is the agent's answer, not time.
func settle(t *testing.T, b *bench, d wire.Desired) Observation {
	t.Helper()
	for {
		o, fresh := b.links.Set(t.Context(), endpoint(), d)
		if fresh {
			return o
		}
		select {
		case <-b.woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("the session was not woken; the last observation is %+v", o)
		}
	}
}

func TestSetReturnsTheAgentsAnswer(t *testing.T) {
	b := newBench(t, whole())
	o := settle(t, b, desired(policy.WorkspaceWrite, 1))
	if o.Observed == nil || o.Observed.Applied == nil || o.Observed.Applied.Stamp.SessionGeneration != 1 {
		t.Fatalf("the observation does not show the policy applied: %+v", o)
	}
}

func TestTheSameDesiredStateIsPushedOnce(t *testing.T) {
	b := newBench(t, whole())
	for range 5 {
		settle(t, b, desired(policy.ReadOnly, 1))
	}
	if n := len(b.agent.Pushes()); n != 1 {
		t.Errorf("%d pushes, want 1", n)
	}
}

func TestSwitchesTravelOverOneConnection(t *testing.T) {
	b := newBench(t, whole())
	for i := range int64(10) {
		settle(t, b, desired(policy.Modes()[i%3], i+1))
	}
	if n := len(b.dials); n != 1 {
		t.Errorf("%d dials for 10 switches, want 1", n)
	}
	if got := b.agent.Protocols(); len(got) != 10 || got[0] != "HTTP/2.0" {
		t.Errorf("pushes over %q, want 10 over HTTP/2.0", got)
	}
}

func TestAChangeOfTheAgentWakesTheSession(t *testing.T) {
	b := newBench(t, whole())
	settle(t, b, desired(policy.ReadOnly, 1))
	b.agent.Update(func(o *wire.Observed) { o.Activity.State = wire.InTurn })
	if got := <-b.woken; got != session {
		t.Fatalf("woke %v, want %v", got, session)
	}
	if o := b.links.Last(endpoint()); o.Observed.Activity.State != wire.InTurn {
		t.Errorf("the observation after the wake is %+v", o.Observed.Activity)
	}
}

func TestAnswersOfAnotherPodAreDropped(t *testing.T) {
	b := newBench(t, agenttest.Identity{SessionUID: sessionUID, Incarnation: incarnation, PodUID: "another-pod"})
	waitTrouble(t, b, "another session or pod")
	if o := b.links.Last(endpoint()); o.Observed != nil {
		t.Errorf("an answer of another pod was taken: %+v", o.Observed)
	}
}

func TestAnotherSessionsCertificateIsRefused(t *testing.T) {
	b := newBench(t, agenttest.Identity{SessionUID: "another-session", Incarnation: incarnation, PodUID: podUID})
	waitTrouble(t, b, "certificate is valid for")
	if n := len(b.agent.Pushes()); n != 0 {
		t.Errorf("%d desired states were shown to the agent of another session", n)
	}
}

func TestAMisdirectedPushIsTrouble(t *testing.T) {
	b := newBench(t, whole())
	b.agent.Misdirect()
	waitTrouble(t, b, "belongs to another session or pod")
}

func TestARefusedConnectionIsTroubleInStableWords(t *testing.T) {
	b := newBench(t, whole())
	b.agent.Stop()
	waitTrouble(t, b, "dial: connect: connection refused")
}

// waitTrouble sets a desired state and waits until the link says what is wrong.
func waitTrouble(t *testing.T, b *bench, want string) {
	t.Helper()
	for range 2000 {
		o, fresh := b.links.Set(t.Context(), endpoint(), desired(policy.ReadOnly, 1))
		if fresh {
			t.Fatalf("the observation is fresh: %+v", o)
		}
		if strings.Contains(o.Trouble, want) {
			return
		}
		if o.Trouble != "" {
			t.Fatalf("trouble %q, want it to contain %q", o.Trouble, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no trouble was reported")
}

func TestAnOlderPolicyIsRefusedWithTheStampInForce(t *testing.T) {
	b := newBench(t, whole())
	newer := policy.Stamp{SessionUID: sessionUID, SessionGeneration: 7}
	b.agent.Force(newer, policy.Policy{})
	o := settle(t, b, desired(policy.WorkspaceWrite, 3))
	if o.Refused == nil || *o.Refused != newer {
		t.Fatalf("Refused = %+v, want %+v", o.Refused, newer)
	}
	d := desired(policy.WorkspaceWrite, 3)
	d.Replaces = o.Refused
	if o := settle(t, b, d); o.Refused != nil || o.Observed.Applied.Stamp.SessionGeneration != 3 {
		t.Fatalf("naming the stamp did not replace it: %+v", o)
	}
}

func TestAnAgentStartedAnewIsToldAgain(t *testing.T) {
	b := newBench(t, whole())
	settle(t, b, desired(policy.ReadOnly, 1))
	b.agent.Update(func(o *wire.Observed) { o.Boot++; o.Applied = nil; o.Revision = 0 })
	for len(b.agent.Pushes()) < 2 {
		<-b.woken
	}
	if o := settle(t, b, desired(policy.ReadOnly, 1)); o.Observed.Applied == nil {
		t.Error("the policy is not applied again")
	}
}

func TestForgetEndsTheConnection(t *testing.T) {
	b := newBench(t, whole())
	settle(t, b, desired(policy.ReadOnly, 1))
	b.links.Forget(session)
	if o := b.links.Last(endpoint()); o.Observed != nil {
		t.Error("a forgotten link still has an observation")
	}
	settle(t, b, desired(policy.ReadOnly, 1))
	if n := len(b.dials); n != 2 {
		t.Errorf("%d dials, want 2: the link was forgotten in between", n)
	}
}

func TestWhatAnAgentSaysIsBounded(t *testing.T) {
	long := strings.Repeat("é\x1b\u202e", 10_000)
	o := wire.Observed{Usage: wire.Usage{Input: -1}, Log: wire.LogHead{Seq: 1 << 63, Digest: long}}
	for i := range 1000 {
		o.Unconfirmed = append(o.Unconfirmed, fmt.Sprint(i, long))
		o.Problems = append(o.Problems, wire.Problem{Message: long})
		o.Messages = append(o.Messages, wire.MessageStatus{UID: fmt.Sprint(i), Reply: long, Reason: long})
		o.Containers = append(o.Containers, wire.Container{Name: long, Report: wire.Enforcement{Layers: []string{"a", "a"}, Detail: long}})
	}
	bound(&o)
	if len(o.Unconfirmed) > maxContainers || len(o.Problems) != maxProblems || len(o.Messages) != maxMessages || len(o.Containers) != maxContainers {
		t.Error("a list is not bounded")
	}
	if o.Messages[maxMessages-1].UID != "999" {
		t.Error("the newest message was cut off, not the oldest")
	}
	for _, s := range []string{o.Problems[0].Message, o.Messages[0].Reason, o.Containers[0].Name, o.Log.Digest} {
		if len(s) > maxMessage || strings.ContainsAny(s, "\x1b\u202e") {
			t.Errorf("not bounded to a line: %.80q", s)
		}
	}
	if len(o.Messages[0].Reply) > wire.MaxReply || len(o.Containers[0].Report.Layers) != 1 || o.Usage.Input != 0 || int64(o.Log.Seq) < 0 {
		t.Error("a reply, layers or a number is not bounded")
	}
}

type noCredentials struct{}

func (noCredentials) Client(string) (*tls.Certificate, error) { return nil, fmt.Errorf("none") }
func (noCredentials) Pool(string) *x509.CertPool              { return x509.NewCertPool() }

func TestSetNeverDialsInItsCaller(t *testing.T) {
	hanging := make(chan struct{})
	l := New(t.Context(), Options{Credentials: noCredentials{}, Wake: func(types.NamespacedName) {},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(hanging)
			<-ctx.Done() // ends with the test alone
			return nil, ctx.Err()
		}})
	o, fresh := l.Set(t.Context(), endpoint(), desired(policy.ReadOnly, 1))
	<-hanging
	if fresh || o.Observed != nil {
		t.Errorf("Set() = %+v, %v while the dial hangs", o, fresh)
	}
}
