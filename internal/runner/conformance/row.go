// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance/attempt"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Row is one promise.
type Row struct {
	Name string
	Try  Trial
	Want [3]Want // by mode, narrowest first
	// Changes says that where it is allowed the fixture must be another afterwards.
	Changes bool
	// Outside says that the row needs Place.Outside.
	Outside bool
	// InTerminal says that the command runs in a terminal.
	InTerminal bool
	// notTwice keeps a row from being tried in a terminal, too.
	notTwice bool
	// Layer is the promise's part of the sandbox: rows of the workspace must hold by the mount alone.
	Layer Layer
}

// Layer groups rows by what they are about.
type Layer uint8

const (
	OfSystem    Layer = iota // everything but the following
	OfWorkspace              // modifications of the workspace
	OfScopes                 // signals to others, which only Landlock's scopes refuse
)

// Trial is a tool call; {dir}, {outside} and {toolbox} are filled in.
type Trial struct {
	Tool      string
	Command   string // bash and terminal
	Path      string // file tools; of a command, the working directory
	Status    bool   // the command is an attempt, with its exit statuses
	WantsText func(output string) error
}

// Want is what must come of a trial.
type Want struct {
	Allowed bool
	Killed  bool     // by the kernel
	Errors  []string // denied, by one of these; empty means any
	Denial  wire.Denial
	skip    bool
}

var (
	allowed = Want{Allowed: true}
	killed  = Want{Killed: true}
	notHere = Want{skip: true}
)

func denied(errors ...string) Want { return Want{Errors: errors} }

func everywhere(w Want) [3]Want { return [3]Want{w, w, w} }

// operation is a trial by a raw system call.
func operation(args ...string) Trial {
	return Trial{Tool: "bash", Command: "{toolbox} attempt " + strings.Join(args, " "), Status: true}
}

// shell is a trial by a command line: allowed if it ends with status 0.
func shell(command string) Trial { return Trial{Tool: "bash", Command: command} }

// says is a trial whose output is looked at.
func says(command string, check func(string) error) Trial {
	return Trial{Tool: "bash", Command: command, WantsText: check}
}

type command struct {
	Command string `json:"command"`
	Cwd     string `json:"cwd,omitempty"`
	Timeout int    `json:"timeout_seconds"`
}

// inTerminal opens a terminal and waits for the end of its command, whatever that writes.
type inTerminal struct {
	Action  tool.Action `json:"action"`
	Command string      `json:"command"`
	Cwd     string      `json:"cwd,omitempty"`
	Wait    int         `json:"wait_millis"`
	Idle    int         `json:"idle_millis"`
}

func (t Trial) arguments(fill *strings.Replacer) (string, error) {
	var v any
	switch t.Tool {
	case "bash":
		v = command{fill.Replace(t.Command), fill.Replace(t.Path), 30}
	case tool.TerminalName:
		v = inTerminal{tool.Open, fill.Replace(t.Command), fill.Replace(t.Path), 60000, 60000}
	case "write":
		v = map[string]any{"path": fill.Replace(t.Path), "content": "attempted\n"}
	case "edit":
		v = map[string]any{"path": fill.Replace(t.Path), "old_string": "original", "new_string": "attempted"}
	case "glob":
		v = map[string]any{"pattern": "*", "path": fill.Replace(t.Path)}
	case "grep":
		v = map[string]any{"pattern": "original", "path": fill.Replace(t.Path)}
	default:
		v = map[string]any{"path": fill.Replace(t.Path)}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	c, err := tool.Decode(t.Tool, b)
	return string(c.Canonical), err
}

// judge compares what came with what was wanted.
func (t Trial) judge(w Want, r Result) error {
	if r.Cause != wire.Finished {
		return fmt.Errorf("the call ended as %s: %s", r.Cause, r.Detail)
	}
	output := strings.TrimSpace(r.Output)
	died := r.Signal == "SIGSYS" || r.Status == 128+31
	switch {
	case w.Killed && died:
		return nil
	case w.Killed:
		return fmt.Errorf("was not killed: status %d %s, %q", r.Status, r.Signal, output)
	case died || t.Status && r.Status == attempt.StatusBroken:
		return fmt.Errorf("could not be tried: status %d %s, %q", r.Status, r.Signal, output)
	case w.Allowed && r.Status != 0:
		return fmt.Errorf("was refused: status %d, %q", r.Status, output)
	case w.Allowed && t.WantsText != nil:
		return t.WantsText(output)
	case w.Allowed:
		return nil
	case r.Status == 0:
		return errors.New("was not refused")
	}
	return t.judgeDenial(w, r, output)
}

func (t Trial) judgeDenial(w Want, r Result, output string) error {
	if w.Denial != "" && t.Tool != "bash" && r.Denial != w.Denial {
		return fmt.Errorf("is no typed denial %q: %q, %q", w.Denial, r.Denial, output)
	}
	if !t.Status {
		return nil
	}
	name, ok := strings.CutPrefix(output, "denied ")
	if !ok {
		return fmt.Errorf("ended with status %d without saying why: %q", r.Status, output)
	}
	if len(w.Errors) > 0 && !slices.Contains(w.Errors, name) {
		return fmt.Errorf("was refused with %s, not %s", name, strings.Join(w.Errors, " or "))
	}
	return nil
}

func (r Row) want(m policy.Mode) Want { return r.Want[m] }
