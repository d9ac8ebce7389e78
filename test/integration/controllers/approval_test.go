// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A call that waits for a person is seen in status while it does, and no switch waits for it.
func TestACallThatWaitsIsSeen(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	if s := b.session().Status; s.Policy.Approval != v1alpha1.ApprovalAsk || s.Applied.Approval != v1alpha1.ApprovalAsk || s.Activity.PendingApprovals != 0 {
		t.Errorf("by default a session has %+v, %+v, %+v", s.Policy, s.Applied, s.Activity)
	}
	pushes := b.agent.Pushes()
	if got := pushes[len(pushes)-1].Config.ApprovalTimeoutSeconds; got != 1800 {
		t.Errorf("the agent is told %d s", got)
	}
	b.deliver(b.say("work", "Work."))
	b.agent.Update(func(o *wire.Observed) {
		o.Activity.State = wire.WaitingForApproval
		o.Approvals = []wire.Approval{
			{CallID: "1.2.1", Seq: 17, Tool: "bash", Mode: policy.WorkspaceWrite, Preview: "run", Digest: strings.Repeat("a", 64), ExpiresAt: time.Now().Add(time.Hour)},
			{CallID: "1.2.2", Preview: strings.Repeat("a", 1<<16)}, // nobody could see it whole
		}
	})
	b.until("WaitingForApproval=True/ApprovalPending")
	b.wants("Active=True/InTurn", "Ready=True/Running")
	if a := b.session().Status.Activity; a.State != v1alpha1.ActivityWaitingForApproval || a.PendingApprovals != 1 {
		t.Errorf("activity = %+v", a)
	}
	c := meta.FindStatusCondition(b.session().Status.Conditions, v1alpha1.ConditionWaitingForApproval)
	if !strings.Contains(c.Message, "bash asks to run once under workspace-write") {
		t.Errorf("the message says %q", c.Message)
	}
	b.quiet()

	b.patch(`{"approval":{"policy":"never"}}`)
	b.step()
	b.until("ModeApplied=True/Applied")
	if s := b.session().Status; s.Applied.Approval != v1alpha1.ApprovalNever {
		t.Errorf("applied = %+v", s.Applied)
	}
	b.agent.Update(func(o *wire.Observed) { o.Activity.State, o.Approvals = wire.Idle, nil })
	b.until("WaitingForApproval=False/NonePending")
	b.wants("Active=False/WaitingForInput")
	if a := b.session().Status.Activity; a.PendingApprovals != 0 {
		t.Errorf("activity = %+v", a)
	}
}
