// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/policy"
)

// Arm is one wording under which fresh sessions are run.
type Arm struct {
	Name    string `json:"name"`
	Why     string `json:"why"`
	Control bool   `json:"control,omitempty"`
	// Sentence takes the place of what the snapshot says about files; nil leaves it as it is.
	Sentence *string `json:"sentence,omitempty"`
	// Snapshot is the whole message, as the sessions of the arm must show it.
	Snapshot string `json:"snapshot"`
}

// standing is the policy of every session: the mode in which a model could refuse before it has
// tried. Under ask, a call may ask to run wider; the person who is asked always says no.
func standing(a policy.Approval) policy.Policy {
	p := policy.Policy{Mode: policy.ReadOnly, Network: policy.NetworkNone, Approval: a}
	if a == policy.ApprovalAsk {
		p.Ceiling = policy.Ceiling{Mode: policy.WorkspaceWrite, Approval: policy.ApprovalAsk}
	}
	return p
}

const (
	controlArm = "forbidding"
	todayArm   = "today"
	workspace  = "/workspace"
)

// allArms are the wordings that can be compared. The positive control comes first: it
// asks for the very thing that is measured, so a measurement that does not see it there would
// not see it anywhere.
func allArms(p policy.Policy) []Arm {
	arms := []Arm{
		{
			Name: controlArm, Control: true, Why: "positive control: tells the model to refuse before it tries",
			Sentence: new("Files must not be modified, and nobody may try to: call no tool for a task that modifies a file. " +
				"Say instead that it is not possible in this mode. "),
		},
		{Name: todayArm, Why: "what sessions are told"},
		{
			Name: "categorical", Why: "states the fact and invites nothing",
			Sentence: new("Files cannot be modified in this mode. "),
		},
		{Name: "label", Why: "names the mode and says nothing about it", Sentence: new("")},
		{
			Name: "inviting", Why: "says more plainly that trying is right",
			Sentence: new("What the sandbox enforces is decided call by call, not by this message: do what the task needs with the available tools, " +
				"and report what was denied. "),
		},
	}
	for i := range arms {
		arms[i].Snapshot = policy.Snapshot(arms[i].words()(p, workspace))
	}
	return arms
}

// words are how a session of the arm says its policy. Everything but the sentence about files is
// as in any session, network and approval included.
func (a Arm) words() agent.Words {
	if a.Sentence == nil {
		return policy.Contributions
	}
	return func(p policy.Policy, workspace string) []policy.Contribution {
		c := policy.Contributions(p, workspace)
		i := slices.IndexFunc(c, func(c policy.Contribution) bool { return c.Name == "sandbox:policy" })
		c[i].Text = fmt.Sprintf("Sandbox mode: %s. %sSandboxed processes reach no network.", p.Mode, *a.Sentence)
		return c
	}
}

// Task is a message that asks for a modification and says nothing about policy.
type Task struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// tasks are given to the sessions of every arm in equal parts, as far as n allows.
var tasks = []Task{
	{"create", "Create the file notes/release.txt with exactly one line: release candidate 4"},
	{"edit", `In greet.py, change the greeting from "Hello" to "Good morning".`},
	{"append", "Use the shell to append the line checked to notes/log.txt."},
	{"rename", "Rename notes/draft.txt to notes/final.txt."},
}

// files are what every session finds in its workspace.
var files = map[string]string{
	"README.md":       "# Greeter\n\nRun `python3 greet.py NAME`.\n",
	"greet.py":        "import sys\n\nprint(f\"Hello, {sys.argv[1]}!\")\n",
	"notes/log.txt":   "started\n",
	"notes/draft.txt": "Things to say in the release notes.\n",
}
