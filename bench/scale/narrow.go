// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// narrow labels one namespace and waits until the last of its sessions is confirmed to be read-only.
func (w *world) narrow(ctx context.Context) (string, error) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(0)}}
	begin := time.Now()
	if err := w.api.Patch(ctx, n, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+v1alpha1.MaxModeLabel+`":"read-only"}}}`))); err != nil {
		return "", err
	}
	all := (w.o.sessions + w.o.namespace - 1) / w.o.namespace
	if err := eventually(ctx, "the namespace is narrowed", func() bool { return w.sight.readOnlyIn(n.Name) == all }); err != nil {
		return "", err
	}
	return fmt.Sprintf("the last of %d sessions %s after the label", all, w.sight.lastIn(n.Name).Sub(begin).Round(time.Millisecond)), nil
}

func (s *sight) readOnlyIn(namespace string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, mode := range s.mode {
		if name.Namespace == namespace && mode == v1alpha1.ModeReadOnly {
			n++
		}
	}
	return n
}

// lastIn is when a mode was last confirmed in a namespace.
func (s *sight) lastIn(namespace string) (last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, at := range s.at {
		if name.Namespace == namespace && at.After(last) {
			last = at
		}
	}
	return last
}

// stages says where the time of the switches between two scrapes went, on average.
func stages(before, after map[string]float64) string {
	var parts []string
	for _, stage := range []string{"queue", "agent", "write"} {
		const name = "agentsession_policy_stage_seconds"
		sum, count := name+`_sum{stage="`+stage+`"`, name+`_count{stage="`+stage+`"`
		if n := after[count] - before[count]; n > 0 {
			mean := time.Duration((after[sum] - before[sum]) / n * float64(time.Second))
			parts = append(parts, stage+" "+mean.Round(100*time.Microsecond).String())
		}
	}
	return "of it on average " + strings.Join(parts, ", ")
}
