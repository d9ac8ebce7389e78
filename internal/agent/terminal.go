// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// maxTerminals is how many terminals may be open at once.
	maxTerminals = 4
	// maxUnread is how many may be kept, ended ones included, until the model has been told.
	maxUnread = 32
	// keepTerminal is how much of what a terminal's command writes waits to be read.
	keepTerminal = keepOutput
)

// Why a terminal is no longer there, for the model.
const (
	terminalNarrowed  = "the sandbox was narrowed, which ends every terminal. Open it again if it is still needed."
	terminalWidened   = "the sandbox was widened, and what runs cannot be: every terminal was ended. Open it again to work under what holds now."
	terminalRestarted = "the agent was restarted, and every terminal was ended with it. Its last output is lost, and what its command did last is not known: verify before repeating it."
	terminalLost      = "the connection to the tools container was lost, and everything in it was ended. What its command did last is not known: verify before repeating it."
	terminalUnheard   = "the operator was not heard for longer than the session may run without it, and every terminal was ended. Open it again if it is still needed."
	terminalGranted   = "a call was let run once under a wider mode, and every terminal was ended before it. Open it again if it is still needed."
	terminalStopped   = "the session was stopped."
)

// terminal is one that was opened in this boot and whose end the model has not been told yet.
type terminal struct {
	*toolsocket.Terminal
	name    string
	profile policy.Profile // what it runs under, as long as it lives
	why     string         // it is ended for this reason, which is not its command's own
	closing bool           // by the model's own wish
	before  []string       // how the one that had its name has ended, which nobody asked for
}

func (t *terminal) alive() bool {
	over, _, _ := t.Over()
	return !over
}

// runTerminal is runCall for the tool terminal.
func (a *Agent) runTerminal(ctx context.Context, w work, args *tool.Terminal) error {
	t, p, refused, err := a.passTerminal(ctx, w, args)
	switch {
	case errors.Is(err, toolsocket.ErrNotConnected):
		return a.answerCall(w.id, eventlog.OutcomeNotStarted, textAway)
	case ctx.Err() != nil || a.root.Err() != nil:
		return a.answerCall(w.id, eventlog.OutcomeNotStarted, "not started: "+stopText(ctx)+". Nothing happened.")
	case err != nil:
		return a.answerCall(w.id, eventlog.OutcomeNotStarted, "not started: "+err.Error())
	case refused != nil:
		return a.record(func(*fold) []entry { return []entry{{eventlog.TypeToolResult, *refused}} })
	}
	notes, isError := a.act(ctx, t, args)
	return a.finishTerminal(ctx, w, p, t, notes, isError)
}

// passTerminal is pass for the tool terminal. An action on a terminal that is there runs under what
// the terminal was opened under: the standing policy is the same, or it would have been ended. One
// that is not there is answered at once.
func (a *Agent) passTerminal(ctx context.Context, w work, args *tool.Terminal) (*terminal, *passed, *eventlog.ToolResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.awaitLocked(ctx, a.openLocked)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	name := args.Which()
	t := a.terminals[name]
	if text := a.terminalMissesLocked(args, t); text != "" {
		r := refusal(w.id, eventlog.OutcomeRefused, text)
		if args.Action != tool.Open {
			r.Terminal = &eventlog.TerminalState{Name: name}
		}
		return nil, nil, &r, nil
	}
	if args.Action != tool.Open && !t.alive() { // nothing is done to it, so nothing starts
		r := a.terminalResultLocked(ctx, w, &passed{profile: t.profile, told: t.profile}, t, nil, false)
		r.Profile = nil
		return nil, nil, &r, nil
	}
	profile, start := a.f.planStart(w.id, a.epoch)
	if args.Action != tool.Open {
		profile, start = t.profile, a.f.planStartUnder(w.id, a.epoch, t.profile)
	}
	if err := a.recordLocked(start); err != nil {
		return nil, nil, nil, err
	}
	p := &passed{id: w.id, profile: profile, told: a.f.toldProfile(), policy: a.f.policy.doc.Policy}
	if args.Action == tool.Open {
		if t, err = a.openTerminalLocked(w, args, profile); err != nil {
			return nil, nil, nil, err
		}
	}
	a.running++
	a.publishLocked()
	return t, p, nil, nil
}

// terminalMissesLocked says why an action cannot be done, or nothing.
func (a *Agent) terminalMissesLocked(args *tool.Terminal, t *terminal) string {
	name := args.Which()
	if args.Action != tool.Open {
		if t != nil {
			return ""
		}
		if why, known := a.f.terminals[name]; known {
			return fmt.Sprintf("The terminal %s is gone: %s", name, orElse(why, terminalLost))
		}
		return fmt.Sprintf("There is no terminal %s: open it first. %s", name, a.openTerminalsLocked())
	}
	switch {
	case t != nil && t.alive():
		return fmt.Sprintf("not started: the terminal %s is open already. Close it first, or use another name.", name)
	case a.livingLocked() >= maxTerminals:
		return fmt.Sprintf("not started: %d terminals may be open at once. %s Close one first.", maxTerminals, a.openTerminalsLocked())
	case t == nil && len(a.terminals) >= maxUnread:
		return fmt.Sprintf("not started: %d terminals have ended and were not read since. Use the name of one of them: %s.",
			len(a.terminals), strings.Join(slices.Sorted(maps.Keys(a.terminals)), ", "))
	}
	return ""
}

func (a *Agent) openTerminalsLocked() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(a.terminals)) {
		if a.terminals[name].alive() {
			names = append(names, name)
		}
	}
	if names == nil {
		return "No terminal is open."
	}
	return "Open are: " + strings.Join(names, ", ") + "."
}

// livingLocked is how many terminals have something running in them.
func (a *Agent) livingLocked() (n int) {
	for _, t := range a.terminals {
		if t.alive() {
			n++
		}
	}
	return n
}

// openTerminalLocked orders a terminal. Its start is in the log.
func (a *Agent) openTerminalLocked(w work, args *tool.Terminal, profile policy.Profile) (*terminal, error) {
	rows, cols := args.Size()
	var before []string
	if old := a.terminals[args.Which()]; old != nil {
		_, e, lost := old.Over()
		before, _, _ = terminalEnd(w, &passed{profile: old.profile}, old, e, lost)
	}
	started, err := a.tools.StartTerminal(wire.ContainerFor(profile), wire.Start{
		Call: w.id, Epoch: a.epoch, Profile: profile, Tool: w.call.Tool.Name, Arguments: string(w.call.Canonical), Digest: w.call.Digest,
		Workspace: a.config.Workspace,
	}, rows, cols, keepTerminal, a.terminalEnded)
	if err != nil {
		return nil, err
	}
	t := &terminal{Terminal: started, name: args.Which(), profile: profile, before: before}
	a.terminals[t.name] = t
	return t, nil
}

// terminalEnded is told by a terminal whose command is no more.
func (a *Agent) terminalEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.publishLocked()
}

// act does with a terminal what is asked for. It returns what there is to say beside the output.
func (a *Agent) act(ctx context.Context, t *terminal, args *tool.Terminal) (notes []string, isError bool) {
	switch args.Action {
	case tool.Open:
		for _, line := range t.before {
			notes = append(notes, "Of the earlier terminal of that name: "+line)
		}
		a.awaitStart(ctx, t)
	case tool.Close:
		a.closeTerminal(t)
		return nil, false
	case tool.Send:
		notes, isError = typeInto(t, args)
	case tool.Look:
	}
	t.AwaitOutput(ctx, args.Wait(), args.Idle())
	return notes, isError
}

// awaitStart waits until the command runs. A supervisor that says nothing is given up.
func (a *Agent) awaitStart(ctx context.Context, t *terminal) {
	wait, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = t.AwaitEnd(wait)
	}()
	select {
	case <-t.Started():
	case <-ended:
		if ctx.Err() == nil && t.alive() {
			a.o.Log.Error("A supervisor does not start a terminal; dropping it", "call", t.ID)
			t.Abandon()
			_ = t.AwaitEnd(context.Background())
		}
	}
	cancel()
	<-ended
}

func typeInto(t *terminal, args *tool.Terminal) (notes []string, isError bool) {
	if args.Resizes() {
		if err := t.Resize(args.Size()); err != nil && t.alive() {
			notes = append(notes, fmt.Sprintf("(the size could not be set: %v)", err))
		}
	}
	if args.Input == "" {
		return notes, false
	}
	n, err := t.Type(args.Input)
	switch {
	case errors.Is(err, toolsocket.ErrLineTooLong):
		return append(notes, "not typed: "+err.Error()+"."), true
	case n < len(args.Input):
		return append(notes, fmt.Sprintf("(only the first %d of %d bytes were typed: the command does not read its input)", n, len(args.Input))), true
	}
	return notes, false
}

// closeTerminal ends a terminal and waits for that.
func (a *Agent) closeTerminal(t *terminal) {
	a.mu.Lock()
	t.closing = true
	a.mu.Unlock()
	t.Stop()
	a.awaitTerminalEnd(t)
}

// awaitTerminalEnd waits for the end of a terminal that was stopped. A supervisor that does not
// end it loses its connection, and with it everything that it runs.
func (a *Agent) awaitTerminalEnd(t *terminal) {
	ctx, cancel := context.WithTimeout(a.root, stopPatience)
	defer cancel()
	if t.AwaitEnd(ctx) != nil && a.root.Err() == nil {
		a.o.Log.Error("A supervisor does not end a terminal; dropping it", "call", t.ID)
		t.Abandon()
		_ = t.AwaitEnd(context.Background())
	}
}

// endTerminalsLocked ends every terminal and returns when none lives: before the sandbox is widened,
// and before a call starts that may do more than they may. The model is told why at its next action on
// each. mu is free while it waits: whoever calls it keeps new ones from being opened meanwhile, by
// closing the gate or by being the call that runs alone.
func (a *Agent) endTerminalsLocked(why string) {
	living := a.giveReasonLocked(why)
	for _, t := range living {
		t.Stop()
	}
	a.mu.Unlock()
	for _, t := range living {
		a.awaitTerminalEnd(t)
	}
	a.mu.Lock()
}

// giveReasonLocked notes why those terminals end that live now.
func (a *Agent) giveReasonLocked(why string) (living []*terminal) {
	for _, t := range a.terminals {
		if t.alive() {
			living = append(living, t)
			if t.why == "" && !t.closing {
				t.why = why
			}
		}
	}
	return living
}

// finishTerminal logs the result of an action.
func (a *Agent) finishTerminal(ctx context.Context, w work, p *passed, t *terminal, notes []string, isError bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.recordLocked(entry{eventlog.TypeToolResult, a.terminalResultLocked(ctx, w, p, t, notes, isError)})
	a.running--
	a.publishLocked()
	return err
}

// terminalResultLocked is what the model is told of a terminal now. One that has ended is forgotten.
func (a *Agent) terminalResultLocked(ctx context.Context, w work, p *passed, t *terminal, notes []string, isError bool) eventlog.ToolResult {
	over, e, lost := t.Over()
	r := eventlog.ToolResult{CallID: w.id, Profile: mustJSON(p.profile), Terminal: &eventlog.TerminalState{Name: t.name, Open: !over}, IsError: isError}
	output := renderTerminal(t.Take())
	switch {
	case over:
		note, failed, outcome := terminalEnd(w, p, t, e, lost)
		notes, r.IsError, r.Outcome = append(notes, note...), failed, outcome
		if a.terminals[t.name] == t {
			delete(a.terminals, t.name)
		}
	case ctx.Err() != nil:
		notes = append(notes, fmt.Sprintf("(stopped waiting: %s. The terminal %s stays open)", stopText(ctx), t.name))
	default:
		notes = append(notes, fmt.Sprintf("(the terminal %s is open)", t.name))
	}
	if e.OutOfMemory {
		notes = append(notes, textMemory)
	}
	if p.profile != p.told {
		notes = append(notes, fmt.Sprintf("This terminal runs under %s, which is narrower than what was stated when this was asked for: it stays so until it is closed.", profileText(p.profile)))
	}
	r.Text = runtimecontext.ResultText(join(output, notes))
	return r
}

// terminalEnd says how a terminal ended.
func terminalEnd(w work, p *passed, t *terminal, e wire.Exited, lost error) (notes []string, isError bool, outcome string) {
	gone := "The terminal " + t.name + " is gone: "
	switch {
	case t.why != "":
		return []string{gone + t.why}, true, eventlog.OutcomeKilled
	case lost != nil:
		return []string{gone + terminalLost}, true, eventlog.OutcomeUnknown
	case t.closing && e.Cause == wire.Cancelled:
		return append([]string{fmt.Sprintf("(the terminal %s is closed)", t.name)}, leftovers(e)...), false, ""
	case e.Cause == wire.Finished:
		how := fmt.Sprintf("(the command of the terminal %s has ended: %s)", t.name, exitText(e))
		return append([]string{how}, leftovers(e)...), e.Status != 0 || e.Signal != "", ""
	case e.Cause == wire.Narrowing:
		return []string{gone + terminalNarrowed}, true, eventlog.OutcomeKilled
	}
	return ending(w, p, e, "")
}

func exitText(e wire.Exited) string {
	if e.Signal != "" {
		return "ended by signal " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

func leftovers(e wire.Exited) []string {
	if e.Processes == 0 {
		return nil
	}
	return []string{fmt.Sprintf("(%d processes in it were ended)", e.Processes)}
}

// renderTerminal is what was written, with plain ends of lines.
func renderTerminal(o toolsocket.Output) string {
	text := string(o.Tail)
	if o.Omitted > 0 {
		for i := 0; i < 3 && len(text) > 0 && text[0]&0xc0 == 0x80; i++ { // the rest of a character
			text = text[1:]
		}
		text = fmt.Sprintf("[… %d bytes were dropped here: only the newest %d wait to be read …]\n%s", o.Omitted, keepTerminal, text)
	}
	return strings.ReplaceAll(text, "\r\n", "\n")
}
