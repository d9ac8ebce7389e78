// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Terminal are the arguments of the tool terminal.
type Terminal struct {
	Action     Action `json:"action" jsonschema:"open starts a command in a new terminal; send types into it; read waits for more output; close ends it and everything in it"`
	Name       string `json:"name,omitempty" jsonschema:"which terminal, by a name of your choice; main if not given"`
	Command    string `json:"command,omitempty" jsonschema:"for open: the command line for bash -c; an interactive shell if not given"`
	Cwd        string `json:"cwd,omitempty" jsonschema:"for open: the directory to start in, absolute or relative to the workspace; the workspace if not given"`
	Input      string `json:"input,omitempty" jsonschema:"for send: what to type, exactly as given. A line ends with a newline character; control keys are characters too: U+0003 is Ctrl-C, U+0004 is Ctrl-D, U+001B is Escape"`
	Rows       int    `json:"rows,omitempty" jsonschema:"for open and send: the height; 24 if never given"`
	Cols       int    `json:"cols,omitempty" jsonschema:"for open and send: the width; 80 if never given"`
	WaitMillis int    `json:"wait_millis,omitempty" jsonschema:"the longest time to wait for output, in milliseconds; 2000 if not given, 60000 at most"`
	IdleMillis int    `json:"idle_millis,omitempty" jsonschema:"answer earlier when something was written and then nothing for that long, in milliseconds; 300 if not given"`
}

// Action is what is done with a terminal.
type Action string

const (
	Open  Action = "open"
	Send  Action = "send"
	Look  Action = "read" // Read is the tool of that name
	Close Action = "close"
)

// Bounds of the arguments of a terminal.
const (
	MaxTerminalWait  = 60 * time.Second
	MaxTerminalInput = 64 << 10
	maxTerminalName  = 32
	maxTerminalSize  = 1000
)

// TerminalName is what the tool is called.
const TerminalName = "terminal"

var terminalTool = define[Terminal](TerminalName,
	"Run a command in a terminal that stays between calls, and type to it. Every action answers with what was written since the last one, "+
		"as it came, control sequences included. A terminal ends with its command, and also whenever the session's sandbox mode or network changes: "+
		"the next action says so, and it can be opened again.", false)

// Which is the name of the terminal that is meant.
func (t *Terminal) Which() string { return orDefault(t.Name, "main") }

// Size is how large a new terminal is.
func (t *Terminal) Size() (rows, cols int) { return orDefault(t.Rows, 24), orDefault(t.Cols, 80) }

// Resizes reports whether a size is asked for.
func (t *Terminal) Resizes() bool { return t.Rows != 0 || t.Cols != 0 }

// Wait is the longest time to wait for output.
func (t *Terminal) Wait() time.Duration {
	return time.Duration(orDefault(t.WaitMillis, 2000)) * time.Millisecond
}

// Idle is how long nothing has to be written for the answer to come earlier.
func (t *Terminal) Idle() time.Duration {
	return time.Duration(orDefault(t.IdleMillis, 300)) * time.Millisecond
}

func orDefault[T comparable](v, other T) T {
	if v == *new(T) {
		return other
	}
	return v
}

// constrain says in the schema which actions there are.
func (*Terminal) constrain(s *jsonschema.Schema) {
	s.Properties["action"].Enum = []any{string(Open), string(Send), string(Look), string(Close)}
}

func (t *Terminal) check() error {
	switch t.Action {
	case Open, Send, Look, Close:
	default:
		return fmt.Errorf("action must be one of %s, %s, %s and %s, not %.40q", Open, Send, Look, Close, string(t.Action))
	}
	return errors.Join(t.checkName(), t.checkOpen(), t.checkSend(), t.checkSize(), t.checkWait())
}

func (t *Terminal) checkName() error {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if len(t.Name) > maxTerminalName || strings.Trim(t.Name, plain) != "" {
		return fmt.Errorf("name must consist of at most %d letters, digits, - and _", maxTerminalName)
	}
	return nil
}

func (t *Terminal) checkOpen() error {
	switch {
	case t.Action != Open && (t.Command != "" || t.Cwd != ""):
		return errors.New("command and cwd are for open alone")
	case t.Command != "" && strings.TrimSpace(t.Command) == "":
		return errors.New("command must not be blank: leave it out for an interactive shell")
	case strings.ContainsRune(t.Command, 0):
		return errors.New("command must not contain a NUL character")
	case strings.ContainsRune(t.Cwd, 0):
		return errors.New("cwd must not contain a NUL character")
	}
	return nil
}

func (t *Terminal) checkSend() error {
	switch {
	case t.Action != Send && t.Input != "":
		return errors.New("input is for send alone")
	case t.Action == Send && t.Input == "" && !t.Resizes():
		return errors.New("input must not be empty")
	case len(t.Input) > MaxTerminalInput:
		return fmt.Errorf("input has %d bytes; at most %d are taken at once", len(t.Input), MaxTerminalInput)
	}
	return nil
}

func (t *Terminal) checkSize() error {
	switch {
	case t.Action != Open && t.Action != Send && t.Resizes():
		return errors.New("rows and cols are for open and send")
	case min(t.Rows, t.Cols) < 0 || max(t.Rows, t.Cols) > maxTerminalSize:
		return fmt.Errorf("rows and cols must be between 1 and %d", maxTerminalSize)
	}
	return nil
}

func (t *Terminal) checkWait() error {
	most := int(MaxTerminalWait.Milliseconds())
	if min(t.WaitMillis, t.IdleMillis) < 0 || max(t.WaitMillis, t.IdleMillis) > most {
		return fmt.Errorf("wait_millis and idle_millis must be between 1 and %d", most)
	}
	return nil
}
