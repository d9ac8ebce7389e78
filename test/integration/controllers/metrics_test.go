// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/wire"
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

// A switch is counted once, however often it is looked at.
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
}

// labels are the metrics that there are, and what their labels may be.
var labels = map[string]map[string][]string{
	"agentsession_policy_applied_seconds": {},
	"agentsession_policy_stage_seconds":   {"stage": {"queue", "agent", "write"}},
	"agentsession_links_held":             {},
	"agentsession_link_errors_total":      {"kind": link.Kinds()},
	"agentsession_reconcile_causes_total": {"cause": controllers.Causes()},
	"agentsession_sessions":               {"state": controllers.SessionStates()},
}

// scrape reads the metrics as Prometheus does, and checks that every label is of a closed set.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for name, f := range families {
		if !strings.HasPrefix(name, "agentsession_") {
			continue
		}
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += "/" + l.GetValue()
				if !slices.Contains(labels[name][l.GetName()], l.GetValue()) {
					t.Errorf("%s has the label %s=%q, which is of no closed set", name, l.GetName(), l.GetValue())
				}
			}
			values[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if labels[name] == nil {
			t.Errorf("%s is not among the metrics that are described", name)
		}
	}
	return values
}

// inNamespace reads one namespace: other tests have left sessions in theirs.
type inNamespace struct {
	client.Reader
	name string
}

func (n inNamespace) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return n.Reader.List(ctx, list, append(o, client.InNamespace(n.name))...)
}

// Metrics follow a session from its creation to its deletion.
func TestMetricsAreScraped(t *testing.T) {
	b := newBench(t)
	b.serve()
	own := prometheus.NewRegistry()
	if err := own.Register(controllers.Census(inNamespace{b.manager.GetCache(), b.name.Namespace})); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(prometheus.Gatherers{metrics.Registry, own}, promhttp.HandlerOpts{}))
	defer server.Close()
	var before map[string]float64
	b.eventually("the cache is filled", func() bool {
		before = scrape(t, server.URL)
		_, counted := before["agentsession_sessions/Idle"]
		return counted
	})
	more := func(key string) bool { return scrape(t, server.URL)[key] > before[key] }
	same := func(key string) bool { return scrape(t, server.URL)[key] == before[key] }

	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("there is a pod", func() bool { return b.pod() != nil && more("agentsession_sessions/Pending") })
	b.start()
	b.eventually("the session is idle", func() bool { return more("agentsession_sessions/Idle") && same("agentsession_sessions/Pending") })
	b.say("hello", "Hello?")
	b.agent.Update(func(o *wire.Observed) { o.Activity.State = wire.InTurn })
	b.eventually("the session is in a turn", func() bool { return more("agentsession_sessions/InTurn") && same("agentsession_sessions/Idle") })
	b.agent.Update(func(o *wire.Observed) { o.Activity.Turns++ })
	b.eventually("what the agent said is counted", func() bool { return more("agentsession_reconcile_causes_total/agent") })
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.eventually("the switch is counted", func() bool {
		return more("agentsession_policy_applied_seconds") && more("agentsession_policy_stage_seconds/agent")
	})
	for _, cause := range []string{"session", "pod", "message"} {
		if !more("agentsession_reconcile_causes_total/" + cause) {
			t.Errorf("nothing was counted for the cause %s", cause)
		}
	}
	b.agent.Stop()
	b.eventually("the link's trouble is counted", func() bool {
		return more("agentsession_link_errors_total/dial") || more("agentsession_link_errors_total/closed")
	})
	if err := admin.Delete(t.Context(), b.session()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the session is no longer counted", func() bool {
		now := scrape(t, server.URL)
		return !slices.ContainsFunc(controllers.SessionStates(), func(state string) bool {
			return now["agentsession_sessions/"+state] != before["agentsession_sessions/"+state]
		})
	})
}
