// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentsession-dev/operator/controllers/link"
)

// Labels are from small closed sets: what a user or an agent chooses never becomes one.
var (
	policyApplied = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "agentsession_policy_applied_seconds",
		Help:    "Time from when the operator first sees a new generation of a running session until its status says that the policy is applied.",
		Buckets: []float64{.005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	policyStages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "agentsession_policy_stage_seconds",
		Help:    "Where that time goes: until a reconcile begins (queue), until the agent has confirmed (agent), until the status is written (write).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"stage"})
	reconcileCauses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentsession_reconcile_causes_total",
		Help: "What had sessions looked at: a change of an object of that kind, something that an agent said, time, or an error.",
	}, []string{"cause"})
	linkErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agentsession_link_errors_total",
		Help: "Exchanges with agents that failed, by how.",
	}, []string{"kind"})
)

func init() {
	metrics.Registry.MustRegister(policyApplied, policyStages, reconcileCauses, linkErrors)
	for _, cause := range Causes() {
		reconcileCauses.WithLabelValues(cause)
	}
	for _, kind := range link.Kinds() {
		linkErrors.WithLabelValues(kind)
	}
}

// CountLinkError counts an exchange that failed, see link.Kinds.
func CountLinkError(kind string) { linkErrors.WithLabelValues(kind).Inc() }

// RegisterHeld publishes how many agents are listened to.
func RegisterHeld(held func() int) error {
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "agentsession_links_held",
		Help: "Agents that are listened to now; the others are at rest and are dialled on demand.",
	}, func() float64 { return float64(held()) }))
}

// observeApplied counts a switch by when it was seen, when a reconcile began with it, when the
// status that confirms it was begun to be written, and when it was.
func observeApplied(seen, taken, confirmed, written time.Time) {
	seconds := func(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }
	policyApplied.Observe(seconds(seen, written))
	policyStages.WithLabelValues("queue").Observe(seconds(seen, taken))
	policyStages.WithLabelValues("agent").Observe(seconds(taken, confirmed))
	policyStages.WithLabelValues("write").Observe(seconds(confirmed, written))
}
