// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/wire"
)

// serve runs the whole operator, with cache, watches and queue, on the bench's session.
func (b *bench) serve(changes ...func(*ctrl.Options, *link.Options)) {
	b.t.Helper()
	options := ctrl.Options{
		Scheme: scheme, Cache: controllers.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // several tests run one, one after the other
	}
	links := link.Options{Credentials: b.ca, Failed: controllers.CountLinkError, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		b.mu.Lock()
		agent := b.agent
		b.mu.Unlock()
		if agent == nil {
			return nil, errors.New("no agent yet")
		}
		return new(net.Dialer).DialContext(ctx, network, agent.Addr)
	}}
	for _, change := range changes {
		change(&options, &links)
	}
	m, err := ctrl.NewManager(operator, options)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &controllers.SessionReconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Authority: b.ca, AgentImage: "agent:1", Operator: itself,
		Recorder: m.GetEventRecorder("agentsession-operator"), Now: time.Now,
	}
	links.Wake = r.Wake
	r.Links, b.manager = link.New(ctx, links), m
	if err := r.SetupWithManager(ctx, m); err != nil {
		b.t.Fatal(err)
	}
	if b.managed != nil {
		if err := b.managed(m, r); err != nil {
			b.t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Errorf("the manager ended with %v", err)
		}
	})
}

// eventually looks again until it is so.
func (b *bench) eventually(what string, so func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if so() {
			return
		}
	}
	b.t.Fatalf("never happened: %s; conditions:\n%s", what, b.conditions())
}

// The watches alone move a session through its life.
func TestTheManagerMovesASessionThroughItsLife(t *testing.T) {
	b := newBench(t)
	if err := admin.Delete(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("a session without its class is refused", func() bool { return b.has("Accepted=False/ClassNotFound") })
	b.class = &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: b.class.Name}, Spec: b.class.Spec}
	b.create(b.class)
	b.eventually("the class brings the pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("the running pod brings Ready", func() bool { return b.has("Ready=True/Running") })

	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.eventually("the patch is applied", func() bool {
		return b.has("ModeApplied=True/Applied") && b.session().Status.Applied.Mode == v1alpha1.ModeWorkspaceWrite
	})

	m := b.say("hello", "Hello?")
	b.eventually("the message is delivered", func() bool { return b.refresh(m, v1alpha1.ConditionDelivered) == "True/Delivered" })
	b.agent.Update(func(o *wire.Observed) {
		o.Messages[0].State, o.Messages[0].Reply, o.Messages[0].Reason = wire.Answered, "Hello.", "Completed"
	})
	b.eventually("the agent's answer arrives", func() bool { return b.refresh(m, v1alpha1.ConditionAnswered) == "True/Answered" })

	b.class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.eventually("a lowered ceiling narrows the session", func() bool { return b.has("ModeApplied=True/Clamped") })

	orphan := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: "orphan"}}
	orphan.Spec.SessionName, orphan.Spec.Content = "nobody", "Hello?"
	b.create(orphan)
	b.eventually("a message to no session says so", func() bool {
		return b.refresh(orphan, v1alpha1.ConditionDelivered) == "False/SessionNotFound"
	})

	if err := admin.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.eventually("a lost pod ends the session", func() bool { return b.has("Completed=True/StateLost") })
	b.wants("Ready=False/StateLost")
	if b.pod() != nil {
		t.Error("there is a second pod")
	}
}
