// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/test/cluster"
)

func (b *bench) session(name string) *v1alpha1.AgentSession {
	return &v1alpha1.AgentSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.AgentSessionSpec{ClassName: namespace},
	}
}

// ready creates a session and returns how long it took until Ready.
func (b *bench) ready(ctx context.Context, name string) (time.Duration, error) {
	return b.until(ctx, &v1alpha1.AgentSessionList{}, b.session(name), func(o any) bool {
		s, ok := o.(*v1alpha1.AgentSession)
		return ok && cluster.Is(s, v1alpha1.ConditionReady, metav1.ConditionTrue)
	})
}

// until creates an object and returns how long it took until a watch saw done.
func (b *bench) until(ctx context.Context, list client.ObjectList, o client.Object, done func(any) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w, err := b.api.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": o.GetName()})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	start := time.Now()
	if err := b.api.Create(ctx, o); err != nil {
		return 0, err
	}
	for e := range w.ResultChan() {
		if e.Type != watch.Deleted && done(e.Object) {
			return time.Since(start), nil
		}
	}
	return 0, fmt.Errorf("%s was not ready within a minute", o.GetName())
}

// switchTo patches the mode and returns how long it took from sending the patch to the confirmation.
func (b *bench) switchTo(ctx context.Context, name string, mode policy.Mode) (time.Duration, error) {
	var start time.Time
	key := client.ObjectKey{Namespace: namespace, Name: name}
	_, err := cluster.Switch(ctx, b.api, key, func() error {
		start = time.Now()
		return b.api.Patch(ctx, b.session(name), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"sandbox":{"mode":"`+mode.String()+`"}}}`)))
	})
	return time.Since(start), err
}

// percentile returns the value that p percent of the durations do not exceed, in milliseconds.
func percentile(d []time.Duration, p int) float64 {
	sorted := slices.Sorted(slices.Values(d))
	return float64(sorted[min(len(sorted)-1, len(sorted)*p/100)].Microseconds()) / 1000
}
