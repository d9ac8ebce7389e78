// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	textLost     = "outcome unknown: the connection to the tools container was lost while this call ran. It may have had its effect, a part of it, or none: verify before repeating it. A command that uses up the container's memory can be the cause."
	textMemory   = "(the memory of the tools container was used up, and the kernel ended a process in it. Do the same with less memory at once; only the administrator of the session's class can give it more.)"
	textAway     = "not started: the tools container went away. Nothing happened; it is safe to ask for it again."
	textNarrowed = "stopped: the sandbox was narrowed"
	textFinal    = "Nobody is asked for more under the approval policy never: this is final."
	textCut      = "not executed: the answer was cut at the output limit, so this call may not be whole. Ask for it again, in smaller pieces."
)

func refusal(id, outcome, text string) eventlog.ToolResult {
	return eventlog.ToolResult{CallID: id, Text: runtimecontext.ResultText(text), IsError: true, Outcome: outcome}
}

// resultOf says what became of a call: what it wrote, how it ended, and under which
// mode where that matters.
func resultOf(w work, p *passed, e wire.Exited, out toolsocket.Output, lost error) eventlog.ToolResult {
	r := eventlog.ToolResult{CallID: w.id, Profile: mustJSON(p.profile)}
	var version string
	if p.file != "" && out.Omitted == 0 {
		var text []byte
		text, version = tool.CutVersion(append(out.Head, out.Tail...))
		out = toolsocket.Output{Head: text}
	}
	if version != "" && lost == nil && e.Cause == wire.Finished && e.Status == 0 {
		r.File = &eventlog.FileVersion{Path: p.file, Version: version}
	}
	output := renderOutput(out, p)
	var notes []string
	switch {
	case lost != nil:
		notes, r.IsError, r.Outcome = []string{textLost}, true, eventlog.OutcomeUnknown
	case e.Denial != "":
		notes, r.IsError, r.Denial = denied(p, e, output), true, mustJSON(e.Denial)
		output = ""
	default:
		notes, r.IsError, r.Outcome = ending(w, p, e, output)
	}
	switch {
	case p.grant != "" && lost == nil && e.Cause != wire.Refused && e.Cause != wire.SetupFailed:
		notes = append(notes, fmt.Sprintf("This call ran once under %s, as %s allowed. Nothing else does: %s stands.",
			profileText(p.profile), orElse(p.by, "a person"), p.policy.Mode))
	case p.grant == "" && p.profile != p.told:
		notes = append(notes, fmt.Sprintf("This call ran under %s, which is narrower than what was stated when it was asked for.", profileText(p.profile)))
	}
	if e.OutOfMemory {
		notes = append(notes, textMemory)
	}
	r.Text = runtimecontext.ResultText(join(output, notes))
	return r
}

// denied states a denial of the toolbox itself. It is typed, so it is no guess.
func denied(p *passed, e wire.Exited, output string) []string {
	what := strings.TrimSpace(e.Detail)
	if what == "" {
		what = strings.TrimSpace(output)
	}
	notes := []string{fmt.Sprintf("denied: %s", strings.TrimPrefix(what, "denied: ")), fmt.Sprintf("(%s)", profileText(p.profile))}
	switch {
	case p.policy.Approval == policy.ApprovalNever:
		notes = append(notes, textFinal)
	case e.Denial == wire.DeniedWrite && len(p.offers) > 0:
		notes = append(notes, guidance(p.offers))
	}
	return notes
}

// guidance is how to ask for more. It is given only where asking can succeed.
func guidance(modes []policy.Mode) string {
	var quoted []string
	for _, m := range modes {
		quoted = append(quoted, strconv.Quote(m.String()))
	}
	which := strings.Join(quoted, " or ")
	if len(modes) > 1 {
		which += " (the narrowest that suffices)"
	}
	return "If it is needed all the same, make this exact call once more with sandbox_permissions " + which +
		" and a justification. A person is asked then; no answer is a denial."
}

func ending(w work, p *passed, e wire.Exited, output string) (notes []string, isError bool, outcome string) {
	under := profileText(p.profile)
	switch e.Cause {
	case wire.Finished:
		return finished(w, p, e, output)
	case wire.TimedOut:
		return []string{fmt.Sprintf("(stopped: it ran longer than %s; everything that it had started was ended)", p.bound)}, true, ""
	case wire.OutputLimit:
		return []string{"(stopped: it wrote more than a call may)"}, true, ""
	case wire.Cancelled:
		return []string{"(stopped: " + orElse(p.stop, "the turn was stopped") + ")"}, true, eventlog.OutcomeKilled
	case wire.Narrowing:
		if p.unheard {
			return []string{textUnheard}, true, eventlog.OutcomeKilled
		}
		return []string{textNarrowed}, true, eventlog.OutcomeKilled
	case wire.Refused:
		return []string{"not started: " + orElse(e.Detail, "the supervisor refused it") + " (" + under + ")"}, true, eventlog.OutcomeRefused
	case wire.SetupFailed:
		return []string{"not started: the sandbox could not be put up: " + orElse(e.Detail, "no detail") + " (" + under + ")"}, true, eventlog.OutcomeNotStarted
	}
	return []string{fmt.Sprintf("outcome unknown: the supervisor gave the cause %.40q", string(e.Cause))}, true, eventlog.OutcomeUnknown
}

func finished(w work, p *passed, e wire.Exited, output string) (notes []string, isError bool, outcome string) {
	isError = e.Status != 0 || e.Signal != ""
	if w.name != "bash" {
		return nil, isError, "" // the tool's own text says it all
	}
	var how string
	switch {
	case e.Signal != "":
		how = "ended by signal " + e.Signal
	default:
		how = fmt.Sprintf("exit status %d", e.Status)
	}
	if isError {
		how += "; " + profileText(p.profile)
	}
	notes = append(notes, "("+how+")")
	if isError {
		notes = append(notes, guess(p, output)...)
	}
	if e.Processes > 0 {
		notes = append(notes, fmt.Sprintf("(%d processes that it left behind were ended)", e.Processes))
	}
	return notes, isError, ""
}

// guess reads the output of a command that failed by itself. Without a record of what the
// kernel refused nobody can know whether the sandbox was the reason.
func guess(p *passed, output string) []string {
	for _, errno := range []string{"Read-only file system", "Permission denied", "Operation not permitted"} {
		if !strings.Contains(output, errno) {
			continue
		}
		notes := []string{fmt.Sprintf("A guess, from %q in the output: the sandbox refused it.", errno)}
		switch {
		case p.policy.Approval == policy.ApprovalNever:
			notes = append(notes, "If so: "+lowerFirst(textFinal))
		case len(p.offers) > 0:
			notes = append(notes, guidance(p.offers))
		}
		return notes
	}
	return nil
}

func profileText(p policy.Profile) string {
	return fmt.Sprintf("sandbox mode %s, network %s", p.Mode, p.Network)
}

// renderOutput is what a call wrote, cut in the middle if it was too much.
func renderOutput(o toolsocket.Output, p *passed) string {
	if o.Omitted == 0 {
		return string(o.Head) + string(o.Tail)
	}
	head, tail := o.Head, o.Tail
	for i := len(head) - 1; i >= max(0, len(head)-utf8.UTFMax); i-- {
		if utf8.RuneStart(head[i]) {
			if !utf8.FullRune(head[i:]) {
				head = head[:i]
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	omitted := o.Omitted + int64(len(o.Head)-len(head)) + int64(len(o.Tail)-len(tail))
	if p.whole {
		return fmt.Sprintf("%s\n[… %d bytes are left out here; the tool read has all of it as %s%s …]\n%s", head, omitted, outputPrefix, p.id, tail)
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here …]\n%s", head, omitted, tail)
}

func join(output string, notes []string) string {
	if len(notes) == 0 {
		return output
	}
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n"
	}
	return output + strings.Join(notes, "\n")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
