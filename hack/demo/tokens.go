// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/agentsession-dev/operator/internal/replaymodel"
)

// tokens asks the model what it received, and checks what the switches cost.
func (d *demo) tokens(ctx context.Context) error {
	path := "/api/v1/namespaces/" + namespace + "/services/replay-model:8080/proxy/requests"
	fmt.Printf("\n$ kubectl get --raw %s\n", path)
	out, err := d.quietly().Kubectl(ctx, "get", "--raw", path)
	if err != nil {
		return err
	}
	var records []replaymodel.Record
	if err := json.Unmarshal([]byte(out), &records); err != nil {
		return fmt.Errorf("reading the model's account: %w", err)
	}
	printAccount(records)
	d.claim(len(records) > 0 && sameHeader(records), "the header (model, tools, system) is byte-identical in all %d requests", len(records))
	for i := 1; i < len(records); i++ {
		if records[i].Snapshots > records[i-1].Snapshots {
			d.claimCost(records[i-1], records[i])
		}
	}
	return nil
}

// claimCost checks the first request after a switch: nothing that an earlier request
// carried was sent in other bytes, and one snapshot was added.
func (d *demo) claimCost(before, after replaymodel.Record) {
	appended, snapshot := true, 0
	for _, m := range after.NewMessages {
		appended = appended && m.NewBytes == m.Bytes
		if m.Kind == "snapshot" {
			snapshot += m.Bytes
		}
	}
	d.claim(appended && after.Snapshots == before.Snapshots+1,
		"request %d, after a switch: %d tokens cached, %d not: one snapshot of %d tokens and what was new anyway",
		after.N, after.CachedTokens, after.UncachedTokens, (snapshot+3)/4)
}

func sameHeader(records []replaymodel.Record) bool {
	for _, r := range records {
		if r.HeaderDigest != records[0].HeaderDigest {
			return false
		}
	}
	return true
}

func printAccount(records []replaymodel.Record) {
	w := tabwriter.NewWriter(os.Stdout, 4, 0, 2, ' ', 0)
	fmt.Fprintln(w, "    REQUEST\tPROMPT\tCACHED\tUNCACHED\tNEW MESSAGES (bytes)\tHEADER")
	for _, r := range records {
		var parts []string
		for _, m := range r.NewMessages {
			parts = append(parts, fmt.Sprintf("%s %d", m.Kind, m.NewBytes))
		}
		fmt.Fprintf(w, "    %d\t%d\t%d\t%d\t%s\t%.8s\n", r.N, r.PromptTokens, r.CachedTokens, r.UncachedTokens, strings.Join(parts, ", "), r.HeaderDigest)
	}
	_ = w.Flush()
}
