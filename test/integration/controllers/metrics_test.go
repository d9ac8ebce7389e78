// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// gathered returns the operator's own metrics.
func gathered(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "agentsession_") {
			own[f.GetName()] = f
		}
	}
	return own
}

// A switch is counted once, however often it is looked at, and no label names a session.
func TestMetricsCountASwitchOnce(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	count := func() uint64 {
		return gathered(t)["agentsession_policy_applied_seconds"].GetMetric()[0].GetHistogram().GetSampleCount()
	}
	before := count()
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.until("ModeApplied=True/Applied")
	b.quiet()
	if n := count() - before; n != 1 {
		t.Errorf("one switch was counted %d times", n)
	}
	errors := gathered(t)["agentsession_link_errors_total"].GetMetric()
	if len(errors) == 0 || len(errors) > 16 {
		t.Errorf("link errors have %d kinds", len(errors))
	}
	for name, f := range gathered(t) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), b.name.Name) || strings.Contains(l.GetValue(), b.name.Namespace) {
					t.Errorf("%s has the label %s=%s", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
}
