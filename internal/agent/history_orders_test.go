// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Orders in which much comes together, and which few random histories meet.
func TestLawsHoldInCriticalOrders(t *testing.T) {
	narrow, wide := policy.Policy{}, policy.Policy{Mode: policy.DangerFullAccess, Network: policy.NetworkOpen}
	run := func(h *history, calls int) {
		h.answer(calls)
		for i := range calls {
			h.start(i)
			h.finish(i, wire.Exited{Cause: wire.Finished})
		}
	}
	for name, order := range map[string]func(*history){
		"a narrowing between a request and its call": func(h *history) {
			h.switchTo(wide)
			h.firstRequest()
			h.switchTo(narrow)
			run(h, 1)
		},
		"a widening between a request and its call": func(h *history) {
			h.firstRequest()
			h.switchTo(wide)
			run(h, 1)
		},
		"a change of another part each between a request and its call": func(h *history) {
			h.switchTo(policy.Policy{Mode: policy.WorkspaceWrite})
			h.firstRequest()
			h.switchTo(policy.Policy{Network: policy.NetworkOpen})
			run(h, 1)
		},
		"two changes between a request and its call": func(h *history) {
			h.switchTo(policy.Policy{Mode: policy.WorkspaceWrite})
			h.firstRequest()
			h.switchTo(wide)
			h.switchTo(policy.Policy{Network: policy.NetworkOpen})
			run(h, 1)
		},
		"a summary under another policy while a request is under way": func(h *history) {
			h.firstRequest()
			run(h, 1)
			h.request()
			h.switchTo(wide)
			h.askForSummary(h.older())
			run(h, 1)
		},
		"to and fro around a summary that fails": func(h *history) {
			h.firstRequest()
			run(h, 1)
			h.switchTo(wide)
			h.askForSummary(h.older())
			h.switchTo(narrow)
			h.request()
			run(h, 0)
		},
		"a change while a request is under way, and its answer": func(h *history) {
			h.firstRequest()
			h.switchTo(wide)
			run(h, 0)
			h.firstRequest()
		},
		"a change between calls and their results": func(h *history) {
			h.firstRequest()
			h.answer(2)
			h.start(0)
			h.finish(0, wire.Exited{Cause: wire.Finished})
			h.switchTo(wide)
			h.start(1)
			h.finish(1, wire.Exited{Cause: wire.Finished})
			h.request()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			order(h)
			checkLaws(t, workspace, h.events, h.bodies)
		})
	}
}

// firstRequest begins a turn with its first request.
func (h *history) firstRequest() {
	h.t.Helper()
	h.message("hi")
	h.openTurn()
	h.request()
}

// older is the event up to which a summary is asked for: the newest that can be.
func (h *history) older() uint64 {
	upTo, _ := h.f.history.Older(0)
	return upTo
}
