// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// step does one random thing that is possible now.
func (h *history) step(t *rapid.T) {
	turn := &h.f.turn
	do := map[string]func(){
		"switch": func() { h.switchTo(anyPolicy(t)) },
		"message": func() {
			h.interrupt = rapid.Bool().Draw(t, "interrupt")
			h.message(rapid.SampledFrom([]string{"hi", policy.SnapshotTag, policy.SnapshotLead}).Draw(t, "content"))
		},
		"crash": func() { h.crash(t) },
	}
	waiting := slices.IndexFunc(turn.calls, func(c *call) bool { return !c.started && !c.done })
	inFlight := turn.open && turn.stepOpen && !turn.answered && turn.attempt > 0
	switch {
	case !turn.open:
		do["open"] = h.openTurn
	case h.f.finished() != nil && !turn.stepOpen: // a crash came before its end
		do["end"] = func() { h.record(h.f.planTurnEnd(ReasonCompleted, "")...) }
	case turn.cancelled && !turn.answered:
		do["end"] = func() { h.record(h.f.planTurnEnd(ReasonCancelled, "")...) }
	case !turn.stepOpen || !turn.answered && turn.attempt == 0:
		do["request"] = h.request
	case inFlight && h.shorter: // the endpoint had refused it
		do["repeat"] = h.request
	case inFlight:
		do["retry"] = func() { h.record(h.f.planRetry(turn.attempt, errors.New("in trouble"), time.Second)) }
		do["repeat"] = h.request // after a retry, or in the boot after a crash
		do["answer"] = func() {
			h.wishes = nil
			for range evenly(t, "calls", 0, 1, 2, 3) {
				h.wishes = append(h.wishes, evenly(t, "wish", policy.ReadOnly, policy.ReadOnly, policy.WorkspaceWrite, policy.DangerFullAccess))
			}
			h.answer(len(h.wishes))
		}
		do["fail"] = func() { h.record(h.f.planTurnEnd(ReasonModelFailed, "no answer")...) }
	case waiting >= 0:
		h.startOrAsk(t, waiting, do)
	}
	do["time"] = func() { h.timePasses(rapid.IntRange(1, 200).Draw(t, "seconds")) }
	if turn.open && (!turn.stepOpen || inFlight) && h.f.finished() == nil {
		do["compact"] = func() { h.compact(t) }
	}
	if running := h.runningCalls(); len(running) > 0 {
		do["finish"] = func() {
			h.finish(rapid.SampledFrom(running).Draw(t, "call"), wire.Exited{Cause: wire.Finished, Status: rapid.IntRange(0, 1).Draw(t, "status")})
		}
	}
	var names []string
	for n := range do {
		names = append(names, n)
		switch n {
		case "switch", "message", "crash", "time", "compact", "fail":
		default: // what goes on with the turn comes more often, or few would go far
			names = append(names, n, n, n, n, n, n)
		}
	}
	slices.Sort(names)
	do[evenly(t, "do", names...)]()
}

// evenly draws each of what there is as often as the others. Rapid's own choice prefers what stands first, and few
// histories would go far.
func evenly[T any](t *rapid.T, label string, from ...T) T {
	const bits = 10 // so many that a remainder is hardly to be noticed
	n := 0
	for _, bit := range rapid.SliceOfN(rapid.Bool(), bits, bits).Draw(t, label) {
		n *= 2
		if bit {
			n++
		}
	}
	return from[n%len(from)]
}

func anyPolicy(t *rapid.T) policy.Policy {
	const ask, never = policy.ApprovalAsk, policy.ApprovalNever
	return policy.Policy{
		Mode:     evenly(t, "mode", policy.Modes()...),
		Network:  evenly(t, "network", policy.NetworkNone, policy.NetworkOpen),
		Approval: evenly(t, "approval", ask, ask, never),
		Ceiling: policy.Ceiling{
			Mode: evenly(t, "ceiling", policy.DangerFullAccess, policy.DangerFullAccess, policy.WorkspaceWrite, policy.ReadOnly), Network: policy.NetworkOpen,
			Approval: evenly(t, "ceiling of approval", ask, ask, ask, never),
		},
	}
}

// Whatever happens in whatever order, crashes at any event included, the laws hold.
func TestLawsHoldInEveryHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistoryOf(t, evenly(t, "context", wire.RuntimeContextEnabled, wire.RuntimeContextEnabled, wire.RuntimeContextEnabled, wire.RuntimeContextSuppressed))
		for range evenly(t, "length", 10, 40, 80, 120) {
			h.step(t)
		}
		checkLaws(t, workspace, h.events, h.bodies)
	})
}
