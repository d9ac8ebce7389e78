// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// waitFor does what `kubectl wait --for=condition=…` does: it lists, then watches, and
// believes a condition once its generation is not older than the object's.
func waitFor(ctx context.Context, c client.WithWatch, key client.ObjectKey, condition string) (*v1alpha1.AgentSession, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	met := func(s *v1alpha1.AgentSession) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, condition)
		return c != nil && c.ObservedGeneration >= s.Generation && c.Status == metav1.ConditionTrue
	}
	this := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}}
	var list v1alpha1.AgentSessionList
	if err := c.List(ctx, &list, this...); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, errors.New("there is no such session")
	}
	if met(&list.Items[0]) {
		return &list.Items[0], nil
	}
	stream, err := c.Watch(ctx, &v1alpha1.AgentSessionList{}, append(this,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})...)
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if s, ok := e.Object.(*v1alpha1.AgentSession); ok && e.Type != watch.Deleted && met(s) {
			return s, nil
		}
	}
	return nil, errors.New("the condition was not met in time")
}

// Who patches the mode and then waits for ModeApplied never goes on before the agent enforces
// the new mode: whether it answers at once, later than the operator waits for it, drains first,
// or loses its connection. WAITS sets how often it is tried, 200 times without.
func TestWaitingForAModeNeverReturnsEarly(t *testing.T) {
	times := 200
	if n, err := strconv.Atoi(os.Getenv("WAITS")); err == nil {
		times = n
	}
	b := newBench(t)
	b.serve()
	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("there is a pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("it is Ready", func() bool { return b.has("Ready=True/Running") })
	agent := b.agent
	agent.OnPush(func(wire.Desired) {
		switch n := rand.N(40); {
		case n < 10:
			time.Sleep(rand.N(20 * time.Millisecond))
		case n == 10:
			time.Sleep(100*time.Millisecond + rand.N(50*time.Millisecond))
		case n < 14:
			agent.Drain()
			time.AfterFunc(rand.N(30*time.Millisecond), func() { agent.Confirm(1) })
		case n == 14:
			agent.Hangup()
		}
	})
	c, err := client.NewWithWatch(direct, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	modes := []v1alpha1.SandboxMode{v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeDangerFullAccess, v1alpha1.ModeReadOnly}
	var took []time.Duration
	for i := range times {
		want := modes[i%len(modes)]
		begin := time.Now()
		b.patchMode(want)
		s, err := waitFor(t.Context(), c, b.name, v1alpha1.ConditionModeApplied)
		enforced, stamp := agent.Enforced() // after the wait, as the user's next step is
		if err != nil {
			t.Fatalf("patch %d: %v; conditions:\n%s", i, err, b.conditions())
		}
		took = append(took, time.Since(begin))
		if enforced.Mode.String() != string(want) || stamp.SessionGeneration != s.Generation {
			t.Fatalf("patch %d: the wait for %s (generation %d) returned while the agent enforced %s (generation %d)",
				i, want, s.Generation, enforced.Mode, stamp.SessionGeneration)
		}
		if s.Spec.Sandbox.Mode != want || s.Status.Applied.Mode != want || s.Status.Applied.Generation != s.Generation {
			t.Fatalf("patch %d: the wait for %s returned with %+v", i, want, s.Status.Applied)
		}
	}
	slices.Sort(took)
	t.Logf("%d times, p50 %s, p99 %s", times, took[times/2], took[times*99/100])
}
