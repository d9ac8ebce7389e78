// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// keptMessages is of how many messages, the newest ones, the state is told.
const keptMessages = 64

// observeLocked renders the present state. Its revision is the caller's.
func (a *Agent) observeLocked() wire.Observed {
	containers := a.containersLocked()
	o := wire.Observed{
		Wire: wire.Version, SessionUID: a.o.SessionUID, Incarnation: a.o.Incarnation, PodUID: a.o.PodUID,
		Boot: uint64(a.boot), Containers: containers, Usage: a.f.usage,
		Activity: wire.Activity{State: a.activityLocked(), Turns: a.f.turns, Steps: a.f.steps, Calls: a.running, Terminals: a.livingLocked()},
		Messages: a.messagesLocked(), Approvals: a.approvalsLocked(), Problems: a.problemsLocked(containers), Settled: a.settled,
	}
	if a.tools != nil {
		o.Unconfirmed, _ = a.tools.Unconfirmed(a.drains)
		if a.overdue == a.drains {
			o.Overdue = a.tools.Overdue(a.drains)
		}
	}
	if head := a.log.Committed(); head.Seq > 0 {
		o.Log = wire.LogHead{Seq: head.Seq, Digest: head.Digest}
	}
	if p := a.f.policy; a.applied != nil {
		o.Applied = &wire.Applied{
			Digest: p.doc.Digest, Stamp: p.stamp, Seq: p.seq, SnapshotSeq: a.f.history.Last().Seq, Killed: p.killed, Time: p.time,
		}
	}
	return o
}

func (a *Agent) containersLocked() []wire.Container {
	if a.tools == nil {
		return nil
	}
	return a.tools.Containers()
}

func (a *Agent) activityLocked() wire.State {
	switch {
	case a.f.ended:
		return wire.Idle
	case !a.readyLocked():
		return wire.Paused
	case a.f.asked.pending():
		return wire.WaitingForApproval
	case a.f.turn.open || a.f.next() >= 0:
		return wire.InTurn
	}
	return wire.Idle
}

// readyLocked reports whether a step may start.
func (a *Agent) readyLocked() bool {
	return a.fatal == nil && a.lost == nil && a.config != nil && a.applied != nil && !a.lacksKeyLocked() && !a.lease.expired &&
		!slices.ContainsFunc(a.containersLocked(), func(c wire.Container) bool {
			return !c.Connected || !c.Report.Level.AtLeast(a.neededLocked())
		})
}

// lacksKeyLocked reports whether the endpoint needs a key that is not there (yet). Messages
// wait for it: a Secret that is made later is mounted by the kubelet within a minute or two.
func (a *Agent) lacksKeyLocked() bool {
	return a.config != nil && a.config.Model.KeySecret != "" && a.keyFileAbsent()
}

// neededLocked is the level that every tools container must have proved for the standing mode.
func (a *Agent) neededLocked() wire.Level {
	if a.config == nil {
		return wire.LevelFull
	}
	return wire.LevelNeeded(a.config.MinimumLevel, a.standingLocked().Mode)
}

// aloneLocked reports whether calls must run one at a time: somewhere they are in no
// domains of their own.
func (a *Agent) aloneLocked() bool {
	return slices.ContainsFunc(a.containersLocked(), func(c wire.Container) bool { return !c.Report.Level.AtLeast(wire.LevelFull) })
}

func (a *Agent) messagesLocked() []wire.MessageStatus {
	var all []wire.MessageStatus
	for i := max(0, len(a.f.messages)-keptMessages); i < len(a.f.messages); i++ {
		m := a.f.messages[i]
		all = append(all, wire.MessageStatus{
			UID: m.uid, Sequence: uint64(i + 1), State: m.state, Turn: m.turn, Reply: m.reply, Reason: m.reason,
		})
	}
	return all
}

func (a *Agent) problemsLocked(containers []wire.Container) []wire.Problem {
	var all []wire.Problem
	if a.fatal != nil {
		all = append(all, wire.Problem{Reason: wire.LogUnwritable, Message: a.fatal.Error()})
	}
	if a.lost != nil {
		all = append(all, *a.lost)
	}
	var away []string
	for _, c := range containers {
		switch {
		case !c.Connected:
			away = append(away, c.Name)
		case a.config != nil && a.applied != nil && !c.Report.Level.AtLeast(a.neededLocked()):
			all = append(all, enforcementProblem(c, a.neededLocked(), a.standingLocked().Mode))
		}
	}
	if len(away) > 0 && !a.toolsDown.IsZero() && time.Since(a.toolsDown) >= toolsPatience {
		all = append(all, wire.Problem{Reason: wire.ToolsUnreachable, Message: fmt.Sprintf(
			"No supervisor is connected from %s: see the logs of that container.", strings.Join(away, " and "))})
	}
	switch {
	case a.lacksKeyLocked():
		all = append(all, wire.Problem{Reason: wire.ModelKeyMissing, Message: fmt.Sprintf(
			"The model's key is missing: create the Secret %s with the key %s in the session's namespace. It is taken up by itself, within two minutes.",
			a.config.Model.KeySecret, wire.ModelKeyFile)})
	case a.keyMissing:
		all = append(all, wire.Problem{Reason: wire.ModelKeyMissing, Message: a.f.modelFailure})
	case a.f.modelFailure != "":
		all = append(all, wire.Problem{Reason: wire.ModelUnavailable, Message: a.f.modelFailure})
	}
	return all
}

// enforcementProblem says why no tool runs although a container is there. The reports come from
// a container where commands run, so their text is cut.
func enforcementProblem(c wire.Container, needed wire.Level, m policy.Mode) wire.Problem {
	const filesABI = 3
	detail := cutText(c.Report.Detail, 512)
	switch {
	case c.Report.Level.AtLeast(wire.LevelFor(m)):
		return wire.Problem{Reason: wire.BelowMinimum, Message: fmt.Sprintf(
			"The node enforces %s and the class demands %s, so no tool runs (%s: %s). Use nodes with Linux 6.12 or later, or lower the class's enforcement.minimum.",
			c.Report.Level, needed, c.Name, detail)}
	case c.Report.LandlockABI < filesABI:
		return wire.Problem{Reason: wire.LandlockUnavailable, Message: fmt.Sprintf(
			"The node offers Landlock ABI %d and %s needs %d, so no tool runs (%s: %s). Use nodes with Linux 6.2 or later; 6.12 for everything.",
			c.Report.LandlockABI, m, filesABI, c.Name, detail)}
	}
	return wire.Problem{Reason: wire.ProbeFailed, Message: fmt.Sprintf(
		"What must be refused was not refused in %s, so no tool runs: %s", c.Name, detail)}
}

// toolsChanged is told by the control sockets.
func (a *Agent) toolsChanged() {
	a.mu.Lock()
	defer a.mu.Unlock()
	down := slices.ContainsFunc(a.tools.Containers(), func(c wire.Container) bool { return !c.Connected })
	switch {
	case !down:
		a.toolsDown = time.Time{}
	case a.toolsDown.IsZero():
		a.toolsDown = time.Now()
	}
	a.publishLocked()
}

// watchTools makes a container that stays away a problem in time.
func (a *Agent) watchTools() {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.toolsChanged()
		case <-a.root.Done():
			return
		}
	}
}

// cutText cuts s at n bytes, between two characters, and says so.
func cutText(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
