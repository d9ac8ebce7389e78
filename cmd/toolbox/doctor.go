// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// doctor says what would be enforced where it runs.
func doctor(args []string) int {
	workspace := wire.Workspace
	if len(args) == 1 {
		workspace = args[0]
	}
	if _, err := os.Stat(workspace); err != nil {
		workspace = os.TempDir()
	}
	p := patient{Where: conformance.Where{Enforcement: runner.Probe(call.Waiter{}, workspace)}.Here(), landlock: sandbox.Kernel().LandlockError}
	fmt.Print(p.diagnosis())
	if p.Enforcement.Level != wire.LevelFull {
		return 1
	}
	return 0
}

// patient is a place as the doctor found it.
type patient struct {
	conformance.Where
	landlock error // why there is no Landlock, if there is none
}

func (w patient) diagnosis() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	e := w.Enforcement
	say("kernel:       Linux %s, Landlock ABI %d", w.Kernel, e.LandlockABI)
	say("layers:       %s", orNone(e.Layers))
	say("enforcement:  %s. %s", e.Level, verdict[e.Level])
	say("")
	for _, m := range policy.Modes() {
		say("%-18s  %s", m, w.mode(m))
	}
	if e.Detail != "" {
		say("\nWhy not more: %s.", e.Detail)
		if advice := w.advice(); advice != "" {
			say("%s", advice)
		}
	}
	for _, c := range w.caveats() {
		say("\n%s", c)
	}
	return b.String()
}

var verdict = map[wire.Level]string{
	wire.LevelFull:  "Sessions of every class run here.",
	wire.LevelFiles: "Sessions run here unless their class has enforcement.minimum Full.",
	wire.LevelMount: "Only read-only sessions run here, and only of classes with enforcement.minimum Mount.",
	wire.LevelNone:  "No session runs a tool here.",
}

// mode says what a mode would be worth.
func (w patient) mode(m policy.Mode) string {
	switch level := w.Enforcement.Level; {
	case level == wire.LevelNone:
		return "would not run"
	case !level.AtLeast(wire.LevelFor(m)):
		return "would not run: it needs Landlock"
	case level == wire.LevelMount && !w.mounted():
		return "would be enforced for the workspace by the read-only mount of a session's pod and the system-call filter (that mount is not here, so it was not tried); " +
			"one call at a time, no terminals"
	case level == wire.LevelMount:
		return "enforced for the workspace by the read-only mount and the system-call filter; one call at a time, no terminals"
	case level == wire.LevelFiles:
		return "enforced: what it forbids was tried and refused; one call at a time, no terminals"
	default:
		return "enforced: what it forbids was tried and refused"
	}
}

func (w patient) mounted() bool { return slices.Contains(w.Enforcement.Layers, runner.LayerMount) }

// advice says what would help.
func (w patient) advice() string {
	switch e := w.Enforcement; {
	case !slices.Contains(e.Layers, runner.LayerSeccomp):
		return "Nothing replaces the system-call filter: use nodes whose kernel has CONFIG_SECCOMP_FILTER and a runtime that lets containers use it."
	case errors.Is(w.landlock, unix.EPERM):
		return "Something refuses Landlock to containers, most likely the seccomp profile of an old container runtime: update the runtime."
	case errors.Is(w.landlock, unix.EOPNOTSUPP):
		return "The kernel has Landlock, and it is switched off: add landlock to the list of the kernel parameter lsm."
	case w.landlock != nil:
		return "The kernel has no Landlock: it is older than Linux 5.13, was built without it, or is not Linux's own, as in gVisor."
	case e.Level == wire.LevelNone:
		return "The kernel says that it has every layer, and yet the trial failed; the trial is believed. Please report it with this text."
	default:
		return "A newer kernel would help."
	}
}

// caveats are differences between this place and a session's pod that may matter.
func (w patient) caveats() (all []string) {
	if w.User == 0 {
		all = append(all, "This ran as root, which no session does.")
	}
	if !w.Seccomp {
		all = append(all, "No seccomp profile is in force here. A session's pod has RuntimeDefault, which may refuse what was found: run this in such a pod to be sure.")
	}
	return all
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}
