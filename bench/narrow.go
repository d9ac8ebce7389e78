// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
)

// narrowCount is how many running sessions one label narrows.
const narrowCount = 20

// narrow labels the namespace of 20 running sessions and waits until the last is confirmed,
// beside patching them one after the other.
func (b *bench) narrow(ctx context.Context) error {
	var names []string
	for i := range narrowCount {
		name := fmt.Sprintf("narrow-%d", i)
		if _, err := b.ready(ctx, name); err != nil {
			return err
		}
		names = append(names, name)
	}
	var patched time.Duration
	for _, name := range names {
		d, err := b.switchTo(ctx, name, policy.WorkspaceWrite)
		if err != nil {
			return err
		}
		patched += d
	}
	last, err := b.label(ctx, names)
	if err != nil {
		return err
	}
	b.add("narrow_20_sessions_ms", float64(last.Microseconds())/1000, "ms", "patching them one after the other", float64(patched.Microseconds())/1000)
	for _, name := range names {
		if err := b.api.Delete(ctx, b.session(name)); err != nil {
			return err
		}
	}
	return nil
}

// label narrows the namespace, and returns when the last of the sessions was confirmed; it takes
// the label off again.
func (b *bench) label(ctx context.Context, names []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w, err := b.api.Watch(ctx, &v1alpha1.AgentSessionList{}, client.InNamespace(namespace))
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	waiting := map[string]bool{}
	for _, name := range names {
		waiting[name] = true
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	set := func(value string) error {
		return b.api.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+v1alpha1.MaxModeLabel+`":`+value+`}}}`)))
	}
	start := time.Now()
	if err := set(`"read-only"`); err != nil {
		return 0, err
	}
	for e := range w.ResultChan() {
		s, ok := e.Object.(*v1alpha1.AgentSession)
		if ok && s.Status.Applied != nil && s.Status.Applied.Mode == v1alpha1.ModeReadOnly {
			delete(waiting, s.Name)
		}
		if len(waiting) == 0 {
			return time.Since(start), set("null")
		}
	}
	return 0, fmt.Errorf("%d of %d sessions were not narrowed within a minute", len(waiting), len(names))
}
