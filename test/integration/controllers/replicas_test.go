// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/wire"
)

// replica is one of several operators that elect the one which works.
type replica struct {
	elected <-chan struct{}
	kill    func() // ends it without giving the lease back
}

func (b *bench) replica(leases string) *replica {
	b.t.Helper()
	m, err := ctrl.NewManager(operator, ctrl.Options{
		Scheme: scheme, Cache: controllers.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     ctrlconfig.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: "agentsession-operator", LeaderElectionNamespace: leases,
		LeaseDuration: new(5 * time.Second), RenewDeadline: new(4 * time.Second), RetryPeriod: new(500 * time.Millisecond),
		GracefulShutdownTimeout: new(time.Duration(0)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &controllers.SessionReconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Authority: b.ca, AgentImage: "agent:1",
		Recorder: m.GetEventRecorder("agentsession-operator"), Now: time.Now,
	}
	r.Links = link.New(ctx, link.Options{Credentials: b.ca, Wake: r.Wake, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		b.mu.Lock()
		agent := b.agent
		b.mu.Unlock()
		if agent == nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.Canceled}
		}
		return new(net.Dialer).DialContext(ctx, network, agent.Addr)
	}})
	if err := r.SetupWithManager(ctx, m); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Start(ctx) // a leader that is killed complains
	}()
	kill := sync.OnceFunc(func() {
		stop()
		<-ended
	})
	b.t.Cleanup(kill)
	return &replica{m.Elected(), kill}
}

// leases is a namespace in which operators elect one of them.
func (b *bench) leases() string {
	b.t.Helper()
	name := b.name.Namespace
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "leases"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "patch"},
	}}}
	b.create(role)
	b.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "leases"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "operator"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}})
	return name
}

// distrust collects every moment in which status said that the runner is not ready.
func (b *bench) distrust() func() []string {
	b.t.Helper()
	c, err := client.NewWithWatch(direct, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	stream, err := c.Watch(b.t.Context(), &v1alpha1.AgentSessionList{}, client.InNamespace(b.name.Namespace))
	if err != nil {
		b.t.Fatal(err)
	}
	var said []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range stream.ResultChan() {
			s, ok := e.Object.(*v1alpha1.AgentSession)
			if ok && !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionRunnerReady) {
				said = append(said, describe(s.Status.Conditions))
			}
		}
	}()
	return func() []string {
		stream.Stop()
		<-done
		return said
	}
}

// The operator that works is killed in the middle of switches and messages. Another one takes over:
// every wait for a mode that returns returns after the mode is enforced, every message arrives
// once, and status never doubts the runner.
func TestAnotherReplicaTakesOver(t *testing.T) {
	b := newBench(t)
	leases := b.leases()
	first := b.replica(leases)
	<-first.elected
	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("there is a pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("it is Ready", func() bool { return b.has("Ready=True/Running") })
	second := b.replica(leases)
	distrusted := b.distrust()
	c, err := client.NewWithWatch(direct, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	modes := []v1alpha1.SandboxMode{v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeDangerFullAccess, v1alpha1.ModeReadOnly}
	var messages []*v1alpha1.SessionMessage
	killed := make(chan struct{})
	for i := range 60 {
		if i == 20 {
			go func() {
				defer close(killed)
				first.kill()
			}()
		}
		if i%4 == 0 {
			messages = append(messages, b.say(fmt.Sprintf("message-%d", i), "Hello?"))
		}
		b.patchMode(modes[i%3])
		s, err := waitFor(t.Context(), c, b.name, v1alpha1.ConditionModeApplied)
		if err != nil {
			t.Fatalf("switch %d: %v; conditions:\n%s", i, err, b.conditions())
		}
		if enforced, stamp := b.agent.Enforced(); enforced.Mode.String() != string(modes[i%3]) || stamp.SessionGeneration != s.Generation {
			t.Fatalf("switch %d: the wait returned while %s of generation %d was enforced", i, enforced.Mode, stamp.SessionGeneration)
		}
	}
	<-killed
	<-second.elected
	sequences := map[int64]string{}
	for _, m := range messages {
		b.eventually(m.Name+" is delivered", func() bool { return b.refresh(m, v1alpha1.ConditionDelivered) == "True/Delivered" })
		if other, twice := sequences[m.Status.Sequence]; twice {
			t.Errorf("%s and %s have the same place in the log", m.Name, other)
		}
		sequences[m.Status.Sequence] = m.Name
	}
	for _, said := range distrusted() {
		t.Errorf("the runner was doubted:\n%s", said)
	}
}

// stale is an operator whose cache shows the session as it was.
func (b *bench) stale(was *v1alpha1.AgentSession) *controllers.SessionReconciler {
	b.t.Helper()
	fresh := b.r
	b.r = nil // which keeps its links
	b.restart()
	old := b.r
	live, err := client.NewWithWatch(operator, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	old.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if s, ok := o.(*v1alpha1.AgentSession); ok {
				was.DeepCopyInto(s)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	b.r = fresh
	return old
}

// An operator that does not know yet that another one is elected pushes what it last saw. A
// wider policy is refused by its stamp, the operator reads again and pushes what there is now; a narrower
// one is taken, and the elected operator says again what is wanted.
func TestAStaleOperatorDoesNotWiden(t *testing.T) {
	for name, tc := range map[string]struct {
		before, now v1alpha1.SandboxMode
		replaces    bool
	}{
		"its policy is wider":    {v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeReadOnly, true},
		"its policy is narrower": {v1alpha1.ModeReadOnly, v1alpha1.ModeWorkspaceWrite, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.ready(tc.before)
			was := b.session()
			b.patchMode(tc.now)
			b.until("ModeApplied=True/Applied")
			var told, replaced atomic.Int64
			b.agent.OnPush(func(d wire.Desired) {
				told.Add(1)
				if d.Replaces != nil {
					replaced.Add(1)
				}
			})
			old := b.stale(was)
			b.eventually("the stale operator has had its say", func() bool {
				if _, err := old.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.name}); err != nil {
					t.Fatalf("the stale operator: %v", err)
				}
				if p, _ := b.agent.Enforced(); p.Mode.String() == string(tc.before) && tc.replaces {
					t.Fatal("the stale operator widened")
				}
				return told.Load() > 0 && (replaced.Load() > 0 || !tc.replaces)
			})
			old.Links.Forget(b.name)
			b.until("ModeApplied=True/Applied")
			b.eventually("what is wanted is enforced", func() bool {
				b.step()
				p, stamp := b.agent.Enforced()
				return p.Mode.String() == string(tc.now) && stamp.SessionGeneration == 2
			})
			b.until("ModeApplied=True/Applied")
			if !tc.replaces && replaced.Load() > 0 {
				t.Error("a narrowing was refused")
			}
			if s := b.session(); s.Status.Applied.Mode != tc.now || s.Status.ObservedGeneration != 2 {
				t.Errorf("status after a stale operator: %+v", s.Status.Applied)
			}
		})
	}
}
