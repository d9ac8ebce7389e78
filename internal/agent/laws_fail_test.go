// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
)

// The laws themselves must be able to fail.
func TestLawsCanFail(t *testing.T) {
	for name, spoil := range map[string]func(*history){
		"I1": func(h *history) {
			h.message("hi")
			h.openTurn()
			h.request()
			h.record(h.f.planPolicy(h.pushed(policy.Policy{Mode: policy.DangerFullAccess}), workspace, false, 1, 0)[0])
			h.send() // again, and without another look at the snapshot
		},
		"I2": func(h *history) {
			h.message("hi")
			h.openTurn()
			h.request()
			h.answer(1)
			h.record(entry{eventlog.TypeToolStart, eventlog.ToolStart{
				CallID: "1.1.1", PolicySeq: h.f.policy.seq, ToldSeq: h.f.turn.told,
				Profile: mustJSON(policy.Profile{Mode: policy.DangerFullAccess}),
			}})
		},
		"I2, a grant of something else": func(h *history) {
			h.granted()
			w := decodeCalls(h.f.turn.calls)[0]
			h.record(h.f.planGranted(w.id, policy.Profile{Mode: policy.DangerFullAccess}, h.epoch)...)
		},
		"I2, a start with no grant": func(h *history) {
			h.asking()
			h.record(entry{eventlog.TypeToolStart, eventlog.ToolStart{
				CallID: "1.1.1", PolicySeq: h.f.policy.seq, ToldSeq: h.f.turn.told, Grant: "a1",
				Profile: mustJSON(policy.Profile{Mode: policy.WorkspaceWrite}),
			}})
		},
		"I2, a request that outlives its policy": func(h *history) {
			h.granted()
			h.record(h.f.planPolicy(h.pushed(policy.Policy{Mode: policy.WorkspaceWrite, Approval: policy.ApprovalAsk}), workspace, false, 1, 0)[1:]...)
		},
		"I3, a grant that outlives its ceiling": func(h *history) {
			h.granted()
			h.use(decodeCalls(h.f.turn.calls)[0])
			h.record(h.f.planPolicy(h.pushed(policy.Policy{Approval: policy.ApprovalAsk, Ceiling: policy.Ceiling{Approval: policy.ApprovalAsk}}), workspace, false, 1, 0)...)
		},
		"I3": func(h *history) {
			h.switchTo(policy.Policy{Mode: policy.WorkspaceWrite})
			h.message("hi")
			h.openTurn()
			h.request()
			h.answer(1)
			h.start(0)
			h.record(h.f.planPolicy(h.pushed(policy.Policy{}), workspace, false, 1, 0)...)
		},
		"I4": func(h *history) {
			h.switchTo(policy.Policy{Mode: policy.WorkspaceWrite})
			h.message("hi")
			h.openTurn()
			h.request()
			h.answer(1)
			h.switchTo(policy.Policy{})
			h.start(0)
			h.record(entry{eventlog.TypeToolResult, eventlog.ToolResult{CallID: "1.1.1", Text: "ok"}})
		},
		"I5": func(h *history) {
			h.message("hi")
			h.openTurn()
			h.request()
			h.answer(0)
			h.config.Workspace = "/other"
			h.f.header.RequestHeader = headerOf(h.config) // without an event
			h.message("ho")
			h.openTurn()
			h.request()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			spoil(h)
			f := &failure{}
			func() {
				defer func() { _ = recover() }()
				checkLaws(f, workspace, h.events, nil)
			}()
			if law, _, _ := strings.Cut(name, ","); f.text == "" || name != "I5" && !strings.HasPrefix(f.text, law) {
				t.Errorf("the spoilt history gave %q", f.text)
			}
		})
	}
}

type failure struct{ text string }

func (f *failure) Helper() {}
func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f.text)
}
