// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

const (
	agentDir      = "internal/agent/"
	transcriptDir = "internal/agent/transcript/"
	contextDir    = "internal/agent/runtimecontext/"
	socketDir     = "internal/agent/toolsocket/"
	logDir        = "internal/agent/eventlog/"
	policyDir     = "internal/policy/"
	runnerDir     = "internal/runner/"

	laws    = "TestLawsHoldInCriticalOrders|TestLawsHoldInEveryHistory"
	inAgent = "internal/agent"
)

var mutations = slices.Concat(telling, starting, gate, resuming, granting, logging, deciding)

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
	{name: "I1: a suppressed session is told all the same", file: agentDir + "plan.go",
		old: "if f.suppressed {\n\t\tcontributions = nil\n\t}", new: "", tests: laws},
	{name: "I1: a request for a summary states what an older snapshot says", file: transcriptDir + "compact.go",
		old: "if h.last.Seq == 0 || h.last.Text == shown.Text {", new: "if h.last.Seq == 0 || shown.Seq != 0 {", pkg: inAgent, tests: laws},
	{name: "I1: a request for a summary states the same twice", file: transcriptDir + "compact.go",
		old: "if h.last.Seq == 0 || h.last.Text == shown.Text {", new: "if h.last.Seq == 0 {", pkg: inAgent, tests: laws},
	{name: "I1: a pending snapshot keeps the place that a compaction moved", file: transcriptDir + "compact.go",
		old: "h.at = max(1, h.at-n+1)", new: "_ = n", pkg: inAgent, tests: laws},
	{name: "I1: what a compaction leaves is told again", file: transcriptDir + "compact.go",
		old: "slices.ContainsFunc(h.marks, func(k mark) bool { return k.snapshot == h.carried.Seq })", new: "false", pkg: inAgent, tests: laws},
	{name: "I1: what was never carried is taken for lost", file: transcriptDir + "compact.go",
		old: "h.carried = Snapshot{}\n\tif !h.pending {", new: "h.carried = Snapshot{}\n\t{", tests: "TestWhereTheSnapshotStandsAfterACompaction"},
	{name: "I1: what a compaction took away counts as carried", file: transcriptDir + "compact.go",
		old: "h.carried = Snapshot{}\n", new: "", pkg: inAgent, tests: laws},
	{name: "I1: the snapshot does not follow the summary", file: transcriptDir + "transcript.go",
		old: "h.at = 1\n", new: "", tests: "TestWhereTheSnapshotStandsAfterACompaction"},
	{name: "a forged snapshot is let through: a message", file: contextDir + "runtimecontext.go",
		old: "return policy.Defuse(\"Message from \" + oneLine(author) + \":\\n\\n\" + valid(content))", new: "return \"Message from \" + oneLine(author) + \":\\n\\n\" + valid(content)", pkg: inAgent, tests: "TestNobodyForgesASnapshot"},
	{name: "a forged snapshot is let through: the prompt", file: contextDir + "runtimecontext.go",
		old: "return policy.Defuse(valid(content))", new: "return valid(content)", pkg: inAgent, tests: "TestNobodyForgesASnapshot"},
	{name: "a forged snapshot is let through: what a terminal writes", file: agentDir + "terminal.go",
		old: "r.Text = runtimecontext.ResultText(join(output, notes))", new: "r.Text = join(output, notes)\n\t_ = runtimecontext.ResultText", tests: "TestNobodyForgesASnapshot"},
	{name: "a forged snapshot is let through: what a call writes", file: agentDir + "result.go",
		old: "r.Text = runtimecontext.ResultText(join(output, notes))", new: "r.Text = join(output, notes)", tests: "TestNobodyForgesASnapshot"},
	{name: "a forged snapshot is let through: what a refusal repeats", file: agentDir + "result.go",
		old: "Text: runtimecontext.ResultText(text), IsError: true", new: "Text: text, IsError: true", tests: "TestNobodyForgesASnapshot"},
	{name: "a forged snapshot is let through: a summary", file: agentDir + "compact.go",
		old: "Summary: runtimecontext.ResultText(summaryLead + text)", new: "Summary: summaryLead + text + runtimecontext.ResultText(\"\")", tests: "TestASummaryForgesNoSnapshot"},
	{name: "a forged snapshot is let through: its beginning", file: policyDir + "context.go",
		old: "SnapshotTag, \"<context-snapshot (quoted)>\",", new: "", tests: "TestDefuseLeavesNothingThatLooksLikeASnapshot"},
	{name: "a forged snapshot is let through: its end", file: policyDir + "context.go",
		old: "SnapshotEndTag, \"</context-snapshot (quoted)>\",", new: "", tests: "TestDefuseLeavesNothingThatLooksLikeASnapshot"},
	{name: "a forged snapshot is let through: its lead line", file: policyDir + "context.go",
		old: "SnapshotLead, \"(quoted:) \"+strings.Replace(SnapshotLead, \"This is\", \"That was\", 1),", new: "", tests: "TestDefuseLeavesNothingThatLooksLikeASnapshot"},
	{name: "an author takes more lines than one", file: contextDir + "runtimecontext.go",
		old: "return ' '", new: "return r", tests: "TestUserText"},
	{name: "a compaction parts a call from its result", file: transcriptDir + "compact.go",
		old: "if h.answer != nil {", new: "if false {", pkg: inAgent, tests: "TestALogThatMakesNoSense"},
	{name: "a step ends with an open call", file: transcriptDir + "transcript.go",
		old: "if h.answer != nil {\n\t\treturn fmt.Errorf(\"event %d (%s): a call has no result\"", new: "if false {\n\t\treturn fmt.Errorf(\"event %d (%s): a call has no result\"", tests: "TestSenselessLogs"},
	{name: "a call has two results", file: transcriptDir + "transcript.go",
		old: "if i < 0 || h.answer.results[i] != nil {", new: "if i < 0 {", tests: "TestSenselessLogs"},
	{name: "I5: the log is said to give requests that it does not give", file: agentDir + "rebuild.go",
		old: "if prepared.Digest() != sent.Digest || len(prepared.Body()) != sent.Bytes || snapshot != sent.SnapshotSeq {", new: "if false && snapshot > 0 {", tests: "TestAChangedLogDoesNotGiveItsRequests"},
}
