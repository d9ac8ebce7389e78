// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/agent"
)

// noEvidence stands first and last in a report of a run without a real model.
const noEvidence = "THIS IS NO EVIDENCE ABOUT ANY MODEL: a script of this repository gave the answers. The run tests the experiment itself."

// report says what a raw log shows. It is made of the log alone.
func report(lines []line) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	h, sessions := *lines[0].Header, sessionsOf(lines)
	if !h.Evidence {
		say("%s\n", noEvidence)
	}
	say("# Wording: refusal before any attempt\n")
	say("- model: %s, %s at %s", h.Endpoint.Model, h.Endpoint.Provider, h.Endpoint.BaseURL)
	say("- plan: %d arms, %d sessions each, seed %d, %d tasks, policy %s", len(h.Arms), h.N, h.Seed, len(h.Tasks), h.Policy)
	say("- primary endpoint: %s", h.Rules.Primary)
	say("- attempt: %s", h.Rules.Attempt)
	say("- exclusion: %s", h.Rules.Exclusion)
	say("- gate: %s", h.Rules.Gate)
	for _, l := range lines {
		switch {
		case l.Stopped != "":
			say("- a run was stopped: %s", l.Stopped)
		case l.Torn > 0:
			say("- a crash had cut a line of the raw log: %d bytes of it were dropped, and the session was run again", l.Torn)
		}
	}
	g := gate(tallyOf(sessions, h.control().Name), h.N)
	say("\n## The gate\n\n%s\n", gateText(g, h.N))
	if g.Open {
		primary(say, h, sessions)
	} else {
		say("Nothing can be said about the other arms. The control's sessions:\n")
		say("| arm | valid | refused | rate | 95 %% interval | excluded |\n|---|---|---|---|---|---|")
		armRow(say, h.control().Name, tallyOf(sessions, h.control().Name))
	}
	excluded(say, sessions)
	secondary(say, h, sessions)
	say("\n## The wordings\n")
	for _, a := range h.Arms {
		say("### %s: %s\n\n```\n%s\n```\n", a.Name, a.Why, a.Snapshot)
	}
	if !h.Evidence {
		say("%s", noEvidence)
	}
	return b.String()
}

func gateText(g Gate, n int) string {
	said := fmt.Sprintf("%d of %d sessions of the positive control refused before they tried (95 %% interval %s); %.0f %% is the floor of its lower end.",
		g.Refused, g.N, g.Interval, 100*gateFloor)
	switch {
	case g.Open:
		return "Open: " + said
	case g.N < n:
		return fmt.Sprintf("Not judged yet, %d of %d sessions are done: %s", g.N, n, said)
	}
	return "Closed: " + said + " A measurement that does not see the effect where it is provoked says nothing about where it is not."
}

func primary(say func(string, ...any), h Header, sessions []Session) {
	say("## Primary endpoint\n")
	say("| arm | valid | refused | rate | 95 %% interval (Wilson) | excluded |\n|---|---|---|---|---|---|")
	for _, a := range h.Arms {
		armRow(say, a.Name, tallyOf(sessions, a.Name))
	}
	if !slices.ContainsFunc(h.Arms, func(a Arm) bool { return a.Name == todayArm }) {
		return
	}
	say("\nDifference to %s, in percentage points with the 95 %% interval of Newcombe; the control ran before the others:\n", todayArm)
	say("| arm | difference | interval |\n|---|---|---|")
	today := tallyOf(sessions, todayArm)
	for _, a := range h.Arms {
		if a.Name == todayArm {
			continue
		}
		t := tallyOf(sessions, a.Name)
		if t.valid < h.N || today.valid < h.N {
			say("| %s | not done: %d and %d of %d | |", a.Name, t.valid, today.valid, h.N)
			continue
		}
		d, i := newcombe(t.refused, t.valid, today.refused, today.valid)
		say("| %s | %+.1f | %+.1f to %+.1f |", a.Name, 100*d, 100*i.Low, 100*i.High)
	}
}

func armRow(say func(string, ...any), name string, t tally) {
	rate := "none"
	if t.valid > 0 {
		rate = fmt.Sprintf("%.1f %%", 100*float64(t.refused)/float64(t.valid))
	}
	say("| %s | %d | %d | %s | %s | %d |", name, t.valid, t.refused, rate, wilson(t.refused, t.valid), t.excluded)
}

func excluded(say func(string, ...any), sessions []Session) {
	reasons := map[string]int{}
	for _, s := range sessions {
		if s.Outcome == Excluded {
			reasons[s.Arm+": "+s.Why]++
		}
	}
	say("\n## Excluded sessions\n")
	if len(reasons) == 0 {
		say("None.")
	}
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		say("- %d x %s", reasons[r], r)
	}
}

// secondary is what else the sessions show. It decides nothing.
func secondary(say func(string, ...any), h Header, sessions []Session) {
	say("\n## Descriptive\n")
	say("Means of valid sessions. *failed* are attempts whose result was an error; *wider* are calls that asked for a wider mode, *at once* the sessions whose first attempt did; *gave up* are turns that ended otherwise than by the model's own stop.\n")
	say("| arm | calls | attempts | failed | wider | at once | steps | first attempt at call | gave up | input | cached | output |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, a := range h.Arms {
		var n, tried, gaveUp, first, atOnce int
		var sum Session
		for _, s := range sessions {
			if s.Arm != a.Name || s.Outcome == Excluded {
				continue
			}
			n++
			sum.Calls, sum.Attempts, sum.Failed, sum.Steps = sum.Calls+s.Calls, sum.Attempts+s.Attempts, sum.Failed+s.Failed, sum.Steps+s.Steps
			sum.Input, sum.CachedInput, sum.Output = sum.Input+s.Input, sum.CachedInput+s.CachedInput, sum.Output+s.Output
			if s.FirstAttempt > 0 {
				tried, first = tried+1, first+s.FirstAttempt
			}
			sum.Escalations += s.Escalations
			if s.Speculative {
				atOnce++
			}
			if s.End != agent.ReasonCompleted {
				gaveUp++
			}
		}
		if n == 0 {
			continue
		}
		say("| %s | %.1f | %.1f | %.1f | %.1f | %d | %.1f | %s | %d | %d | %d | %d |", a.Name, mean(sum.Calls, n), mean(sum.Attempts, n), mean(sum.Failed, n),
			mean(sum.Escalations, n), atOnce, mean(sum.Steps, n), orNone(first, tried), gaveUp, sum.Input/int64(n), sum.CachedInput/int64(n), sum.Output/int64(n))
	}
}

func mean(sum, n int) float64 { return float64(sum) / float64(n) }

func orNone(sum, n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f", mean(sum, n))
}
