// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// The states that sessions are counted in. Each session is in one.
const (
	stateIdle      = "Idle"      // ready, and waits for a message
	stateInTurn    = "InTurn"    // ready, and a turn runs
	statePending   = "Pending"   // on its way to be ready
	stateStalled   = "Stalled"   // somebody must act
	stateSuspended = "Suspended" // without a pod, as wanted
	stateSucceeded = "Succeeded"
	stateFailed    = "Failed" // finished in any other way
)

// SessionStates are all of them.
func SessionStates() []string {
	return []string{stateIdle, stateInTurn, statePending, stateStalled, stateSuspended, stateSucceeded, stateFailed}
}

func stateOf(conditions []metav1.Condition) string {
	completed := meta.FindStatusCondition(conditions, v1alpha1.ConditionCompleted)
	switch {
	case completed != nil && completed.Status == metav1.ConditionTrue && completed.Reason == v1alpha1.ReasonSucceeded:
		return stateSucceeded
	case completed != nil && completed.Status == metav1.ConditionTrue:
		return stateFailed
	case isTrue(conditions, v1alpha1.ConditionStalled):
		return stateStalled
	case isTrue(conditions, v1alpha1.ConditionSuspended):
		return stateSuspended
	case !isTrue(conditions, v1alpha1.ConditionReady):
		return statePending
	case isTrue(conditions, v1alpha1.ConditionActive):
		return stateInTurn
	}
	return stateIdle
}

// census counts sessions when it is asked, from what the cache has: nothing is to be kept in
// step, and a session that is gone is not counted.
type census struct {
	reader client.Reader
	desc   *prometheus.Desc
}

// Census is a metric of the sessions by state.
func Census(cache client.Reader) prometheus.Collector {
	return &census{cache, prometheus.NewDesc("agentsession_sessions",
		"Sessions by state, of which each has one; every replica of the operator tells the same.", []string{"state"}, nil)}
}

func (c *census) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

func (c *census) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list v1alpha1.AgentSessionList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.Log.V(1).Info("Sessions are not counted yet", "error", err.Error()) // the cache is not filled
		return
	}
	count := map[string]int{}
	for i := range list.Items {
		count[stateOf(list.Items[i].Status.Conditions)]++
	}
	for _, state := range SessionStates() {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(count[state]), state)
	}
}
