// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/replaymodel"
)

const tokenSwitches = 20

// tokens asks one question after each switch and takes from the model's account what
// the switch added, in tokens of four bytes, beside the prompt that would be sent
// uncached if the policy stood in the system text.
func (b *bench) tokens(ctx context.Context) error {
	if _, err := b.ready(ctx, "tokens"); err != nil {
		return err
	}
	for i := range tokenSwitches {
		if _, err := b.switchTo(ctx, "tokens", []policy.Mode{policy.WorkspaceWrite, policy.DangerFullAccess, policy.ReadOnly}[i%3]); err != nil {
			return err
		}
		if err := b.ask(ctx, "tokens", fmt.Sprintf("tokens-%d", i)); err != nil {
			return err
		}
	}
	records, err := b.account(ctx)
	if err != nil {
		return err
	}
	snapshots, prompts, n := 0, 0, 0
	for i := 1; i < len(records); i++ {
		if records[i].Conversation != records[i-1].Conversation || records[i].Snapshots == records[i-1].Snapshots {
			continue
		}
		n, prompts = n+1, prompts+records[i].PromptTokens
		for _, m := range records[i].NewMessages {
			if m.NewBytes != m.Bytes {
				return fmt.Errorf("request %d sent bytes again that were changed", records[i].N)
			}
			if m.Kind == "snapshot" {
				snapshots += (m.Bytes + 3) / 4
			}
		}
	}
	if n == 0 {
		return errors.New("no request with a new snapshot was seen")
	}
	b.add("uncached_tokens_per_switch", float64(snapshots)/float64(n), "tokens", "policy in the system prompt (the whole prompt)", float64(prompts)/float64(n))
	return nil
}

func (b *bench) ask(ctx context.Context, session, name string) error {
	m := &v1alpha1.SessionMessage{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.SessionMessageSpec{SessionName: session, Content: "Please say that you have understood."},
	}
	if err := b.api.Create(ctx, m); err != nil {
		return err
	}
	for range 3000 {
		if err := b.api.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionAnswered) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("message %s was not answered within 30 s", name)
}

func (b *bench) account(ctx context.Context) ([]replaymodel.Record, error) {
	out, err := b.Kubectl(ctx, "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/replay-model:8080/proxy/requests")
	if err != nil {
		return nil, err
	}
	var records []replaymodel.Record
	return records, json.Unmarshal([]byte(out), &records)
}
