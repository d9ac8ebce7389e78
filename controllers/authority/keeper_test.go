// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentsession-dev/operator/internal/wire"
)

// replica is one operator beside a Secret that several share.
type replica struct {
	*Keeper
	t       *testing.T
	client  client.Client
	changes int
}

// clock is the time that all replicas of a test read.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func newReplica(t *testing.T, c client.Client, now *clock, used map[string]int, elected bool) *replica {
	t.Helper()
	a, err := Ensure(t.Context(), c, c, "operator", Options{Lifetime: 90 * 24 * time.Hour, Now: now.read})
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan struct{})
	if elected {
		close(won)
	}
	r := &replica{t: t, client: c}
	r.Keeper = &Keeper{
		Authority: a, Reader: c, Writer: c, Namespace: "operator", Elected: won,
		InUse:   func(context.Context) (map[string]int, error) { return used, nil },
		Changed: func(context.Context) { r.changes++ },
	}
	return r
}

func (r *replica) keep() {
	r.t.Helper()
	if err := r.Keep(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) secret() *corev1.Secret {
	r.t.Helper()
	s, err := get(r.t.Context(), r.client, types.NamespacedName{Namespace: "operator", Name: SecretName})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// believes reports whether operator and an agent that was started with a root accept each other.
func (r *replica) believes(hash string, files map[string][]byte) bool {
	r.t.Helper()
	own, err := r.Authority.Client(hash)
	if err != nil {
		return false
	}
	addr, served := serveAt(r.t, files, r.Authority.options.Now)
	if err := dialFor(r.t, r.Authority.Pool(hash), addr, wire.ServerName(sessionUID, incarnation), own, r.Authority.options.Now); err != nil {
		return false
	}
	return <-served == nil
}

// A root is replaced in the last third of its life. Old and new pods are spoken with, and the
// old root goes once no pod knows it.
func TestARootIsReplacedWhilePodsKnowIt(t *testing.T) {
	now := &clock{time.Now()}
	used := map[string]int{}
	c := fake.NewClientBuilder().Build()
	leader, other := newReplica(t, c, now, used, true), newReplica(t, c, now, used, false)
	first := leader.Authority.Hash()
	old, err := leader.Authority.Agent(first, sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	used[first] = 1
	leader.keep()
	if leader.Authority.Hash() != first {
		t.Fatal("a fresh root was replaced")
	}

	now.now = now.now.Add(61 * 24 * time.Hour)
	other.keep()
	if other.Authority.Hash() != first {
		t.Fatal("a replica that is not elected replaced the root")
	}
	leader.keep()
	other.keep()
	second := leader.Authority.Hash()
	if second == first || other.Authority.Hash() != second || leader.changes != 1 || other.changes != 1 {
		t.Fatalf("leader %s (%d changes), other %s (%d changes), first %s", leader.Authority.Hash(), leader.changes, other.Authority.Hash(), other.changes, first)
	}
	fresh, err := other.Authority.Agent(second, sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*replica{"the leader": leader, "the other": other} {
		if !r.believes(first, old) || !r.believes(second, fresh) {
			t.Errorf("%s does not speak with agents of both roots", name)
		}
		if r.believes(second, old) || r.believes(first, fresh) {
			t.Errorf("%s speaks with an agent that believes another root than its pod spec says", name)
		}
	}

	now.now = now.now.Add(time.Hour)
	leader.keep()
	if !leader.Authority.Known(first) {
		t.Fatal("the previous root is gone while a pod knows it")
	}
	delete(used, first)
	leader.keep()
	other.keep()
	if leader.Authority.Known(first) || other.Authority.Known(first) || len(leader.secret().Data[previousKeyFile]) != 0 {
		t.Error("the previous root is kept although no pod knows it")
	}
	if leader.Authority.Hash() != second || leader.changes != 1 {
		t.Error("letting the previous root go changed which one signs")
	}
}

// A pod that was just built with the old root may not be seen yet.
func TestThePreviousRootStaysForAWhile(t *testing.T) {
	now := &clock{time.Now()}
	leader := newReplica(t, fake.NewClientBuilder().Build(), now, nil, true)
	first := leader.Authority.Hash()
	s := leader.secret()
	s.Annotations = map[string]string{RotateAnnotation: "now"}
	if err := leader.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	leader.keep()
	leader.keep()
	if leader.Authority.Hash() == first || !leader.Authority.Known(first) {
		t.Fatal("the annotation brought no new root beside the old one")
	}
	if _, left := leader.secret().Annotations[RotateAnnotation]; left {
		t.Error("the annotation is still there and would bring another root")
	}
	now.now = now.now.Add(11 * time.Minute)
	leader.keep()
	if leader.Authority.Known(first) {
		t.Error("the previous root is kept for nothing")
	}
}

// There are never three: the one that pods still know is not given up for the next.
func TestARootThatIsAskedForTooEarlyWaits(t *testing.T) {
	now := &clock{time.Now()}
	used := map[string]int{}
	leader := newReplica(t, fake.NewClientBuilder().Build(), now, used, true)
	first := leader.Authority.Hash()
	used[first] = 3
	ask := func() {
		s := leader.secret()
		s.Annotations = map[string]string{RotateAnnotation: "now"}
		if err := leader.client.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	leader.keep()
	second := leader.Authority.Hash()
	now.now = now.now.Add(time.Hour)
	ask()
	if err := leader.Keep(t.Context()); err == nil || !strings.Contains(err.Error(), "suspend and resume") {
		t.Errorf("Keep() = %v, want what to do", err)
	}
	if leader.Authority.Hash() != second || !leader.Authority.Known(first) {
		t.Fatal("pods were cut off")
	}
	used[first] = 0
	leader.keep()
	if leader.Authority.Hash() == second || !leader.Authority.Known(second) || leader.Authority.Known(first) {
		t.Error("the root that was asked for did not come when the way was free")
	}
}

func TestASecretThatIsDeletedIsWrittenAgain(t *testing.T) {
	now := &clock{time.Now()}
	c := fake.NewClientBuilder().Build()
	leader, other := newReplica(t, c, now, nil, true), newReplica(t, c, now, nil, false)
	hash := leader.Authority.Hash()
	if err := c.Delete(t.Context(), leader.secret()); err != nil {
		t.Fatal(err)
	}
	if err := other.Keep(t.Context()); err == nil {
		t.Error("a replica that is not elected found nothing wrong")
	}
	leader.keep()
	other.keep()
	if again := newReplica(t, c, now, nil, false); again.Authority.Hash() != hash || other.Authority.Hash() != hash {
		t.Error("the authority is another one after its Secret was deleted")
	}
}

// A node's clock may be behind the operator's by almost an hour, or ahead by days.
func TestClocksThatDiffer(t *testing.T) {
	a := newAuthority(t)
	files, err := a.Agent(a.Hash(), sessionUID, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	own, err := a.Client(a.Hash())
	if err != nil {
		t.Fatal(err)
	}
	for skew, want := range map[time.Duration]bool{-59 * time.Minute: true, -2 * time.Hour: false, 9 * 24 * time.Hour: true, 31 * 24 * time.Hour: false} {
		addr, served := serveAt(t, files, func() time.Time { return time.Now().Add(skew) })
		_ = dial(t, a, addr, wire.ServerName(sessionUID, incarnation), own)
		if err := <-served; (err == nil) != want {
			t.Errorf("an agent whose clock differs by %s: %v, want acceptance %v", skew, err, want)
		}
	}
}
