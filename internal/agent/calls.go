// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/tool"
)

// maxParallel is how many calls that only read run at once.
const maxParallel = 10

// work is one call of an answer, decoded once.
type work struct {
	id   string
	name string
	call tool.Call
	err  error // why it cannot run; the text is for the model
}

func decodeCalls(calls []*call) []work {
	var all []work
	for _, c := range calls {
		w := work{id: c.id, name: c.name}
		w.call, w.err = tool.Decode(c.name, []byte(c.arguments))
		all = append(all, w)
	}
	return all
}

// groups puts together what may run at once: neighbours that only read, a few at a time.
// Everything else runs alone, in the model's order.
func groups(all []work) [][]work {
	var groups [][]work
	reads := false
	for _, w := range all {
		r := w.err == nil && w.call.Tool.ReadsOnly
		if n := len(groups); n > 0 && reads && r && len(groups[n-1]) < maxParallel {
			groups[n-1] = append(groups[n-1], w)
			continue
		}
		groups, reads = append(groups, []work{w}), r
	}
	return groups
}

// runCalls runs the calls of the newest answer. Each of them has a result in the log when
// it returns; the error is that the log cannot be written, or that the agent ends while one waits
// for a person.
func (a *Agent) runCalls(ctx context.Context, all []work) error {
	var err error
	for _, g := range groups(all) {
		errs := make([]error, len(g))
		var wg sync.WaitGroup
		for i, w := range g {
			wg.Go(func() { errs[i] = a.tracedCall(ctx, w) })
		}
		wg.Wait()
		err = errors.Join(append(errs, err)...)
		if errors.Is(err, errLeftOpen) { // nothing overtakes a call that the next boot takes up
			return err
		}
	}
	return err
}

func (a *Agent) runCall(ctx context.Context, w work) error {
	if w.err != nil {
		return a.answerCall(w.id, "", w.err.Error())
	}
	if args, ok := w.call.Arguments.(*tool.Terminal); ok {
		return a.runTerminal(ctx, w, args)
	}
	if text, found, ok := a.outputs.readBack(w.call); ok { // nothing runs for it
		return a.answerWith(eventlog.ToolResult{CallID: w.id, Text: text, IsError: !found})
	}
	if w.call.Wants != nil {
		if granted, err := a.escalate(ctx, w); !granted {
			return err
		}
	}
	p, err := a.pass(ctx, w.id, w.call)
	switch {
	case errors.Is(err, toolsocket.ErrNotConnected):
		return a.answerCall(w.id, eventlog.OutcomeNotStarted, textAway)
	case err != nil && w.call.Wants != nil:
		return a.notGranted(ctx)
	case err != nil:
		return a.answerCall(w.id, eventlog.OutcomeNotStarted, "not started: "+stopText(ctx)+". Nothing happened.")
	}
	exited, out, err := a.wait(ctx, p)
	p.stop, p.unheard, p.whole = stopText(ctx), a.unheard(), p.output.keep() && a.readsBack()
	return a.finish(w, p, func() eventlog.ToolResult { return resultOf(w, p, exited, out, err) })
}

// answerCall logs the result of a call that did not run.
func (a *Agent) answerCall(id, outcome, text string) error {
	return a.answerWith(refusal(id, outcome, text))
}

func (a *Agent) answerWith(r eventlog.ToolResult) error {
	return a.record(func(*fold) []entry { return []entry{{eventlog.TypeToolResult, r}} })
}
