// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentsession-dev/operator/test/cluster"
)

// stages returns how many seconds switches have spent in each stage so far, and how many
// there were, as the operators count them.
func (b *bench) stages(ctx context.Context) (seconds map[string]float64, count float64, err error) {
	pods, err := b.Kubectl(ctx, "-n", cluster.System, "get", "pods", "-l", "app.kubernetes.io/component=manager", "-o", "name")
	if err != nil {
		return nil, 0, err
	}
	seconds = map[string]float64{}
	for pod := range strings.FieldsSeq(pods) {
		text, err := b.Kubectl(ctx, "get", "--raw", "/api/v1/namespaces/"+cluster.System+"/pods/"+strings.TrimPrefix(pod, "pod/")+":8080/proxy/metrics")
		if err != nil {
			return nil, 0, fmt.Errorf("reading the operator's metrics: %w", err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				continue
			}
			if rest, ok := strings.CutPrefix(name, `agentsession_policy_stage_seconds_sum{stage="`); ok {
				seconds[strings.TrimSuffix(rest, `"}`)] += v
			}
			if name == "agentsession_policy_applied_seconds_count" {
				count += v
			}
		}
	}
	return seconds, count, nil
}

// addStages adds what each stage of the operator took of a switch, on average.
func (b *bench) addStages(ctx context.Context, before map[string]float64, counted, mean float64) error {
	after, count, err := b.stages(ctx)
	if err != nil {
		return err
	}
	if count == counted {
		return fmt.Errorf("the operator counted no switch")
	}
	for _, stage := range []string{"queue", "agent", "write"} {
		ms := 1000 * (after[stage] - before[stage]) / (count - counted)
		b.add("switch_"+stage+"_mean_ms", ms, "ms", "the whole switch, on average", mean)
	}
	return nil
}
