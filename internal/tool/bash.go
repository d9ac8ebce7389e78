// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bash are the arguments of the tool bash.
type Bash struct {
	Command        string `json:"command" jsonschema:"the command line for bash -c"`
	Cwd            string `json:"cwd,omitempty" jsonschema:"the directory to run it in, absolute or relative to the workspace; the workspace if not given"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"when to stop it, in seconds; 120 if not given, 600 at most"`
	escalation
}

// How long a command may run.
const (
	DefaultTimeout = 120 * time.Second
	MaxTimeout     = 600 * time.Second
)

var bashTool = define[Bash]("bash",
	"Run a bash command in the workspace and wait for it. Standard input is empty. "+
		"Every process it started ends with it.", false)

// Timeout returns how long the command may run.
func (b *Bash) Timeout() time.Duration {
	if b.TimeoutSeconds == 0 {
		return DefaultTimeout
	}
	return time.Duration(b.TimeoutSeconds) * time.Second
}

func (b *Bash) check() error {
	switch {
	case strings.TrimSpace(b.Command) == "":
		return errors.New("command must not be empty")
	case strings.ContainsRune(b.Command, 0):
		return errors.New("command must not contain a NUL character")
	case strings.ContainsRune(b.Cwd, 0):
		return errors.New("cwd must not contain a NUL character")
	case b.TimeoutSeconds < 0 || b.Timeout() > MaxTimeout:
		return fmt.Errorf("timeout_seconds must be between 1 and %d", int(MaxTimeout.Seconds()))
	}
	return nil
}
