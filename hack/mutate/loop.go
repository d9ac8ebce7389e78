// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

const (
	agentDir      = "internal/agent/"
	transcriptDir = "internal/agent/transcript/"
	contextDir    = "internal/agent/runtimecontext/"
	logDir        = "internal/agent/eventlog/"

	laws    = "TestLawsHoldInEveryHistory|TestHistoriesUseGrants"
	lawsGo  = laws + "|TestLawsHoldInALivingSession"
	inAgent = "internal/agent"
)

var mutations = slices.Concat(telling, starting, gate, resuming, granting, logging)

// telling is what makes each request state the standing policy, and keeps what was sent as it was (I1, I5).
var telling = []mutation{
	{name: "I1: a policy is applied without its snapshot", file: agentDir + "plan.go",
		old: "return append(entries, f.planSnapshot(p.doc.Policy, seq, workspace)...)", new: "_ = seq\n\treturn entries", tests: "TestAPromptIsAnswered"},
	{name: "I1: a step does not look again whether a snapshot is due", file: agentDir + "exchange.go",
		old: "return append(entries, f.planSnapshot(f.policy.doc.Policy, f.policy.seq, c.Workspace)...)", new: "return entries", tests: laws},
	{name: "I1: a request for a summary does not look whether a snapshot is due", file: agentDir + "compact.go",
		old: "if err := a.recordLocked(a.f.planSnapshot(a.f.policy.doc.Policy, a.f.policy.seq, a.config.Workspace)...); err != nil {\n\t\treturn outgoing{}, err\n\t}\n\trequest, snapshot",
		new: "request, snapshot", tests: "TestASummaryStatesThePolicy"},
	{name: "I1: a request leaves while a narrowing is under way", file: agentDir + "exchange.go",
		old: "if err := a.awaitLocked(ctx, a.openLocked); err != nil {", new: "if err := ctx.Err(); err != nil {", tests: "TestNoRequestLeavesDuringANarrowing"},
	{name: "I1: a summary is asked for while a narrowing is under way", file: agentDir + "compact.go",
		old: "if err := a.awaitLocked(ctx, a.openLocked); err != nil {", new: "if err := ctx.Err(); err != nil {", tests: "TestNoRequestLeavesDuringANarrowing"},
	{name: "I1: a pending snapshot is not shown", file: transcriptDir + "transcript.go",
		old: "return h.pending && (h.carried.Seq == 0 || h.last.Text != h.carried.Text)", new: "return h.pending && h.carried.Seq == 0", pkg: inAgent, tests: laws},
	{name: "I1: a snapshot that changes nothing is shown", file: transcriptDir + "transcript.go",
		old: "return h.pending && (h.carried.Seq == 0 || h.last.Text != h.carried.Text)", new: "return h.pending", tests: "TestPlaces"},
	{name: "I1: suppression is forgotten", file: agentDir + "fold.go",
		old: "f.suppressed = c.RuntimeContext == wire.RuntimeContextSuppressed", new: "f.suppressed = false", tests: laws},
	{name: "snapshot condition 1: none is visible", file: contextDir + "runtimecontext.go",
		old: "return Snapshot{Text: text}, text != visible.Text", new: "return Snapshot{Text: text}, visible.Text != \"\" && text != visible.Text", pkg: inAgent, tests: laws},
	{name: "snapshot condition 2: its bytes differ", file: contextDir + "runtimecontext.go",
		old: "return Snapshot{Text: text}, text != visible.Text", new: "return Snapshot{Text: text}, visible.Text == \"\"", pkg: inAgent, tests: laws},
	{name: "snapshot condition 3: compaction took it away", file: transcriptDir + "compact.go",
		old: "h.last, h.lost = Snapshot{}, true", new: "h.lost = true", pkg: inAgent, tests: laws},
	{name: "snapshot condition 4: the last contribution vanished", file: contextDir + "runtimecontext.go",
		old: "visible.Text != \"\" && !visible.Clear", new: "false", tests: "TestDue"},
	{name: "snapshot condition 4: once", file: contextDir + "runtimecontext.go",
		old: "visible.Text != \"\" && !visible.Clear", new: "visible.Text != \"\"", tests: "TestDue"},
	{name: "a forged snapshot is let through", file: contextDir + "runtimecontext.go",
		old: "func ResultText(s string) string { return policy.Defuse(valid(s)) }", new: "func ResultText(s string) string { return valid(s) }", pkg: inAgent, tests: "TestNobodyForgesASnapshot"},
	{name: "I5: the header follows the configuration in the middle of a session", file: agentDir + "exchange.go",
		old: "a.headerDone = true", new: "a.headerDone = false", tests: "TestAChangedClassWaitsForTheNextStart"},
	{name: "I5: a header is used that is not logged", file: agentDir + "header.go",
		old: "if f.header.seq != 0 && want.Provider == have.Provider && want.Model == have.Model && want.System == have.System &&",
		new: "if f.header.seq != 0 {\n\t\tf.header.RequestHeader = want\n\t}\n\tif f.header.seq != 0 && want.Provider != \"\" ||", tests: "TestAChangedClassWaitsForTheNextStart"},
	{name: "I5: a snapshot is put between what was sent", file: transcriptDir + "transcript.go",
		old: "case h.open:\n\t\th.at = atEnd", new: "case h.open:\n\t\th.at = 0", pkg: inAgent, tests: laws},
	{name: "I5: a snapshot of an open step stays where it was logged", file: transcriptDir + "transcript.go",
		old: "case h.open:\n\t\th.at = atEnd", new: "case h.open && h.answer != nil:\n\t\th.at = atEnd", pkg: inAgent, tests: laws},
	{name: "I5: what was carried is forgotten", file: transcriptDir + "transcript.go",
		old: "h.bytes += len(h.last.Text)\n\t\th.carried = h.last", new: "h.bytes += len(h.last.Text)", pkg: inAgent, tests: laws},
	{name: "I5: a request for a summary carries snapshots into the transcript", file: transcriptDir + "transcript.go",
		old: "if r.Ask == \"\" {\n\t\t\t\th.carry()\n\t\t\t}", new: "h.carry()", pkg: inAgent, tests: laws},
	{name: "results stand as they came, not in the model's order", file: transcriptDir + "transcript.go",
		old: "h.answer.results[i] = &r.Text", new: "i = len(h.answer.results) - h.answer.missing\n\th.answer.results[i] = &r.Text", tests: "TestPlaces"},
	{name: "a call is parted from its result", file: transcriptDir + "compact.go",
		old: "(h.messages[n].Role == model.Tool || h.marks[n].key == h.marks[n-1].key)", new: "h.marks[n].key == h.marks[n-1].key && h.messages[n].Role != model.Tool", pkg: inAgent, tests: laws},
}

// starting is under what calls run (I2), what is alive when a policy is applied (I3), and what results say of it (I4).
var starting = []mutation{
	{name: "I2: a call runs as wide as what stands", file: agentDir + "plan.go",
		old: "profile := f.policy.doc.Policy.Profile().Meet(f.toldProfile())", new: "profile := f.policy.doc.Policy.Profile()", tests: laws},
	{name: "I2: a call runs as wide as what it was told", file: agentDir + "plan.go",
		old: "profile := f.policy.doc.Policy.Profile().Meet(f.toldProfile())", new: "profile := f.toldProfile()", tests: laws},
	{name: "I2: told means standing where nothing is told", file: agentDir + "plan.go",
		old: "if f.suppressed {\n\t\treturn f.policy.seq\n\t}", new: "", tests: laws},
	{name: "I2: what the request told is forgotten", file: agentDir + "fold.go",
		old: "if seq != f.policy.seq && seq != f.turn.told {", new: "if seq != f.policy.seq {", tests: laws},
	{name: "I2: a request for a summary counts as telling", file: agentDir + "fold.go",
		old: "if p.Ask == \"\" { // a request for a summary asks for no call", new: "{", tests: lawsGo},
	{name: "I3: a policy does not wait for the results of what it ends", file: agentDir + "apply.go",
		old: "return len(missing) == 0 && a.running == 0 && a.livingLocked() == 0", new: "return len(missing) == 0 && a.livingLocked() == 0", tests: lawsGo + "|TestNarrowingInTheMiddleOfACall"},
	{name: "I3: a policy does not wait for containers", file: agentDir + "apply.go",
		old: "return len(missing) == 0 && a.running == 0 && a.livingLocked() == 0", new: "return a.running == 0 && a.livingLocked() == 0", tests: "TestNarrowingInTheMiddleOfACall"},
	{name: "I3: a policy does not wait for terminals", file: agentDir + "apply.go",
		old: "return len(missing) == 0 && a.running == 0 && a.livingLocked() == 0", new: "return len(missing) == 0 && a.running == 0", tests: "TestATerminalEndsWithThePolicy"},
	{name: "I3: a narrowing ends nothing", file: agentDir + "apply.go",
		old: "if first || a.endsLocked(to) {", new: "if first {", tests: "TestNarrowingInTheMiddleOfACall"},
	{name: "I3: calls start while a narrowing drains", file: agentDir + "apply.go",
		old: "func (a *Agent) narrowLocked(bound policy.Profile) (killed int, err error) {\n\ta.closed = true\n", new: "func (a *Agent) narrowLocked(bound policy.Profile) (killed int, err error) {\n\ta.closed = false\n", tests: "TestNoRequestLeavesDuringANarrowing"},
	{name: "I3: the gate is shut when a narrowing is carried out, not when it is taken", file: agentDir + "apply.go",
		old: "if a.endsLocked(p.doc.Policy) {\n\t\ta.closed = true\n\t}", new: "", tests: "TestTheGateIsShutAtOnce"},
	{name: "I3: the gate opens although a narrower target waits", file: agentDir + "apply.go",
		old: "a.closed = a.endsLocked(a.target.doc.Policy)", new: "a.closed = false", tests: "TestTheGateIsShutAtOnce"},
	{name: "I4: a narrower run is not named", file: agentDir + "result.go",
		old: "p.profile != p.told", new: "false && p.profile != p.told", tests: laws},
	{name: "a result that was cut is executed", file: agentDir + "loop.go",
		old: "if answer.Finish == model.FinishLength {", new: "if false {", tests: "TestWrongCallsAreResults"},
	{name: "calls that write run beside others", file: agentDir + "calls.go",
		old: "r := w.err == nil && w.call.Tool.ReadsOnly", new: "r := w.err == nil", tests: "TestOrderOfCalls"},
}
