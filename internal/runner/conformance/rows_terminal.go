// SPDX-License-Identifier: Apache-2.0

package conformance

import "github.com/agentsession-dev/operator/internal/tool"

// inTerminals are the rows of commands once more, each in a terminal.
func inTerminals(rows []Row) (again []Row) {
	for _, r := range rows {
		if r.Try.Tool == "bash" && !r.notTwice {
			again = append(again, inATerminal(r))
		}
	}
	return again
}

func inATerminal(r Row) Row {
	r.Name += " (in a terminal)"
	r.Try.Tool, r.InTerminal = tool.TerminalName, true
	return r
}

// terminalRows are about the terminal itself: it is the command's own, and nobody types in
// it but the agent.
func terminalRows() []Row {
	here := func(name string, t Trial, w Want) Row { return inATerminal(never(name, t, w)) }
	return []Row{
		here("input, output and error are one", shell("test -t 0 && test -t 1 && test -t 2"), allowed),
		here("it controls the session", shell("true < /dev/tty && echo attempted > /dev/tty"), allowed),
		here("reopen it through its descriptor", shell("echo attempted > /dev/stderr && true < /dev/stdin"), allowed),
		here("change its settings", shell("stty -echo && stty rows 10 && stty sane"), allowed),
		here("leave it", shell("setsid -w sh -c 'true < /dev/tty'"), denied()),
		here("give it another line discipline", operation("line-discipline"), noWay),
		here("give it another line discipline with high bits", operation("line-discipline-high-bits"), noWay),
	}
}
