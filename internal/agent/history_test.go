// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

const workspace = "/workspace"

// history makes logs out of the pure parts, without files, sockets or time.
type history struct {
	t         fataler
	f         *fold
	events    []eventlog.Event
	committed int // events that something was built on
	bodies    map[string][]byte
	stamp     policy.Stamp
	epoch     wire.Epoch
	running   map[int]*passed // by the index of the call
	messages  int
	interrupt bool // the next messages are to
	shorter   bool // the transcript is not what the newest request carried
	config    wire.Config
	wishes    []policy.Mode // of the calls of the next answer; 0 is none
	now       time.Time
}

func newHistory(t fataler) *history { return newHistoryOf(t, wire.RuntimeContextEnabled) }

func newHistoryOf(t fataler, context wire.RuntimeContext) *history {
	h := &history{
		t: t, f: newFold(), bodies: map[string][]byte{}, running: map[int]*passed{}, now: time.Unix(1000, 0).UTC(),
		config: wire.Config{Workspace: workspace, Model: wire.Model{Provider: "OpenAIChat", Name: "m"}, RuntimeContext: context},
	}
	h.record(entry{eventlog.TypeSessionStart, eventlog.SessionStart{SessionUID: testUID, Config: mustJSON(h.config)}}, entry{eventlog.TypeBoot, eventlog.Boot{Boot: 1}})
	h.commit()
	h.record(h.f.planPolicy(h.pushed(policy.Policy{}), workspace, true, 1, 0)...)
	h.commit()
	return h
}

func (h *history) record(entries ...entry) {
	h.t.Helper()
	for _, n := range entries {
		data, err := json.Marshal(n.data)
		if err != nil {
			h.t.Fatalf("%v", err)
		}
		e := eventlog.Event{Seq: uint64(len(h.events) + 1), Type: n.kind, Data: data, Time: time.Unix(1, 0)}
		h.events = append(h.events, e)
		if err := h.f.apply(e); err != nil {
			h.t.Fatalf("%v", err)
		}
	}
}

func (h *history) commit() { h.committed = len(h.events) }

func (h *history) pushed(p policy.Policy) pushed {
	if p.Ceiling == (policy.Ceiling{}) {
		p.Ceiling = policy.Unbounded
	}
	p = policy.Meet(p, p.Ceiling)
	h.stamp.SessionGeneration++
	return pushed{doc: policy.Encode(p), stamp: h.stamp, workspace: workspace}
}

// switchTo does what the gate does: what is wider is ended and has its result first.
func (h *history) switchTo(p policy.Policy) {
	h.t.Helper()
	p = h.pushed(p).doc.Policy
	if policy.EndsProcesses(h.f.policy.doc.Policy, p) || h.endsGrant(p) {
		for _, i := range h.runningCalls() {
			h.finish(i, wire.Exited{Cause: wire.Narrowing})
		}
	}
	h.epoch.Counter++
	h.record(h.f.planPolicy(h.pushed(p), workspace, false, h.epoch.Counter, 0)...)
	h.commit()
}

func (h *history) runningCalls() []int {
	var all []int
	for i := range h.running {
		all = append(all, i)
	}
	slices.Sort(all)
	return all
}

func (h *history) message(content string) {
	h.messages++
	h.record(entry{eventlog.TypeMessageReceived, eventlog.MessageReceived{UID: fmt.Sprintf("m%d", h.messages), Content: content, Interrupt: h.interrupt}})
	h.commit()
}

func (h *history) openTurn() {
	if i := h.f.next(); i >= 0 {
		h.record(h.f.planTurn(i)...)
	}
}

func (h *history) request() {
	h.t.Helper()
	h.record(h.f.planStep(true, h.config)...)
	h.send()
}

// send sends what a request carries now.
func (h *history) send() {
	h.t.Helper()
	h.shorter = false
	r, snapshot, err := h.f.request()
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	p, err := new(model.OpenAIChat).Prepare(r)
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	h.record(h.f.planRequest(p, snapshot))
	h.commit()
	h.bodies[p.Digest()] = p.Body()
}

// compact makes the transcript shorter: results are cut, or a summary is asked for, and maybe
// answered.
func (h *history) compact(t *rapid.T) {
	upTo, _ := h.f.history.Older(rapid.SampledFrom([]int{0, 10, 200, 1000}).Draw(t, "kept"))
	if upTo == 0 || h.f.header.seq == 0 {
		return
	}
	if rapid.Bool().Draw(t, "cut") {
		if cut, _ := h.f.history.Oversized(upTo, 50); len(cut) > 0 {
			h.record(entry{eventlog.TypeCompaction, eventlog.Compaction{UpTo: upTo, Cut: cut, Keep: 50, Cause: eventlog.CauseWindow}})
			h.commit()
			h.shorter = true
		}
	}
	if rapid.Bool().Draw(t, "no summary") {
		return
	}
	h.askForSummary(upTo)
	if rapid.Bool().Draw(t, "summed up") {
		h.record(entry{eventlog.TypeCompaction, eventlog.Compaction{UpTo: upTo, Summary: summaryLead + "text", Cause: eventlog.CauseWindow}})
		h.shorter = true
	}
}

func (h *history) askForSummary(upTo uint64) {
	h.t.Helper()
	h.record(h.f.planSnapshot(h.f.policy.doc.Policy, h.f.policy.seq, workspace)...)
	r, snapshot, err := h.f.summaryRequest(upTo, askSummary)
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	p, err := new(model.OpenAIChat).Prepare(r)
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	h.record(h.f.planSummaryRequest(p, snapshot, upTo, 1))
	h.commit()
	h.bodies[p.Digest()] = p.Body()
}

// answer takes an answer with n calls; with none the turn ends.
func (h *history) answer(n int) {
	a := model.Answer{Content: "text", Finish: model.FinishStop}
	for i := range n {
		c := bash(fmt.Sprintf("c%d", i), "ls")
		if i < len(h.wishes) && h.wishes[i] != policy.ReadOnly {
			c = wants(c.id, "ls", h.wishes[i])
		}
		a.ToolCalls = append(a.ToolCalls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments})
	}
	h.record(h.f.planAnswer(a)...)
	if n == 0 {
		h.record(h.f.planTurnEnd(ReasonCompleted, "")...)
		h.commit()
	}
}

func (h *history) start(i int) {
	c := h.f.turn.calls[i]
	profile, start := h.f.planStart(c.id, h.epoch)
	h.record(start)
	h.commit()
	h.running[i] = &passed{id: c.id, profile: profile, told: h.f.toldProfile(), policy: h.f.policy.doc.Policy}
}

func (h *history) finish(i int, e wire.Exited) {
	p := h.running[i]
	delete(h.running, i)
	h.record(entry{eventlog.TypeToolResult, resultOf(work{id: p.id, name: "bash"}, p, e, toolsocket.Output{Head: bytes.Repeat([]byte("out\n"), 70)}, nil)})
	h.endStep()
}

// endStep ends the open step when all its calls have results.
func (h *history) endStep() {
	if !slices.ContainsFunc(h.f.turn.calls, func(c *call) bool { return !c.done }) {
		h.record(h.f.planStepEnd())
		h.commit()
	}
}

// crash loses what nothing was built on, at any event, and boots again.
func (h *history) crash(t *rapid.T) {
	h.events = h.events[:rapid.IntRange(h.committed, len(h.events)).Draw(t, "survives")]
	h.f, h.running = newFold(), map[int]*passed{}
	for _, e := range h.events {
		if err := h.f.apply(e); err != nil {
			t.Fatalf("a prefix of the log does not fold: %v", err)
		}
	}
	h.record(entry{eventlog.TypeBoot, eventlog.Boot{}})
	h.record(h.f.planRecovery()...)
	h.commit()
	if slices.ContainsFunc(h.f.turn.calls, func(c *call) bool { return !c.done && !slices.Contains(h.f.openCalls(), c) }) {
		t.Fatalf("a call is open after recovery")
	}
	h.record(h.f.planPolicy(h.pushed(h.f.policy.doc.Policy), workspace, true, 1, 0)...)
	h.commit()
}

// A thousand switches while idle cost the next request one snapshot at most, and while a
// session is at work nothing that was sent.
func TestAThousandSwitches(t *testing.T) {
	h := newHistory(t)
	h.message("hi")
	h.openTurn()
	h.request()
	h.answer(0)
	_, before := h.f.history.Request()
	sent := h.f.history.Sent()
	for i := range 1000 {
		h.switchTo(policy.Policy{Mode: policy.Modes()[(i*7+1)%3]})
	}
	messages, _ := h.f.history.Request()
	h.switchTo(policy.Policy{})
	if len(messages)-sent > 2 {
		t.Errorf("the next request carries %d new messages, want the answer and one snapshot at most", len(messages)-sent)
	}
	messages, after := h.f.history.Request()
	if len(messages)-sent != 1 || after != before {
		t.Errorf("back where it was, the next request carries %d new messages, want the answer alone", len(messages)-sent)
	}
	checkLaws(t, workspace, h.events, h.bodies)
}

func BenchmarkFold(b *testing.B) {
	h := newHistory(b)
	for len(h.events) < 100_000 {
		h.message("hi")
		h.openTurn()
		for step := range 5 {
			h.record(entry{eventlog.TypeStepStart, eventlog.StepStart{Turn: h.f.turn.number, Step: step + 1}},
				h.f.planRequest(model.Prepared{}, 0))
			h.answer(2)
			h.start(0)
			h.start(1)
			h.finish(0, wire.Exited{Cause: wire.Finished})
			h.finish(1, wire.Exited{Cause: wire.Finished})
			if len(h.events)%1000 < 20 {
				h.switchTo(policy.Policy{Mode: policy.Modes()[len(h.events)%3]})
			}
		}
		h.record(h.f.planTurnEnd(ReasonCompleted, "")...)
	}
	b.ReportAllocs()
	for b.Loop() {
		f := newFold()
		for _, e := range h.events {
			if err := f.apply(e); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(h.events)), "events/op")
}
