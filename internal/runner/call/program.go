// SPDX-License-Identifier: Apache-2.0

package call

import (
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/tool"
)

// Selftest is the name of the order that runs nothing: it exists to try the path itself.
const Selftest = "selftest"

// program is what the child becomes.
type program struct {
	path string
	argv []string
	env  []string
	dir  string // where it starts
	// stdin is what the program reads from descriptor 0; nil is /dev/null.
	stdin []byte
	// terminal is set if what takes the program's output is a terminal: it is all of
	// its standard input, output and error then, and controls its session.
	terminal bool
}

// MaxCommand is the longest command line: the kernel takes no longer single argument.
const MaxCommand = 128<<10 - 1

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func programFor(o Order) (program, error) {
	p := program{path: self, env: Environment(o.Workspace), dir: o.Workspace}
	if o.Tool == Selftest {
		p.argv = []string{"toolbox", "tool", Selftest}
		return p, nil
	}
	decoded := o.Decoded
	if decoded == nil {
		c, err := tool.Canonical(o.Tool, []byte(o.Arguments))
		if err != nil {
			return program{}, err
		}
		decoded = c.Arguments
	}
	switch a := decoded.(type) {
	case *tool.Bash:
		p.argv, p.dir = []string{"bash", "-c", a.Command}, a.Cwd
	case *tool.Terminal:
		p.argv, p.dir, p.terminal = terminalArgs(a), a.Cwd, true
	default:
		p.argv = []string{"toolbox", "tool", o.Tool, o.Workspace, o.Version}
		p.stdin = []byte(o.Arguments)
		return p, nil
	}
	p.env = Environment(o.Workspace, o.Variables...)
	if !filepath.IsAbs(p.dir) {
		p.dir = filepath.Join(o.Workspace, p.dir)
	}
	var err error
	p.path, err = bash()
	return p, err
}

// terminalArgs start a command, or a shell that reads no file of anybody's: an earlier call
// may have written it.
func terminalArgs(t *tool.Terminal) []string {
	if t.Command == "" {
		return []string{"bash", "--noprofile", "--norc", "--noediting", "-i"}
	}
	return []string{"bash", "-c", t.Command}
}

// ErrCommandTooLong is what CheckCommand says.
var ErrCommandTooLong = fmt.Errorf("the command is longer than %d bytes: write it into a file and run that", MaxCommand)

// CheckCommand refuses a call that could not be executed because of its size.
func CheckCommand(a tool.Arguments) error {
	command := ""
	switch a := a.(type) {
	case *tool.Bash:
		command = a.Command
	case *tool.Terminal:
		command = a.Command
	}
	if len(command) > MaxCommand {
		return ErrCommandTooLong
	}
	return nil
}

// bash is where the image has it.
var bash = sync.OnceValues(func() (string, error) { return lookUp("bash") })

func lookUp(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in the image's %s", name, searchPath)
}
