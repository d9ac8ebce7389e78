// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// A terminal in a real pod: it stays between turns, ends with the mode, which its next action is told,
// and can be opened again under what holds then.
func TestATerminalStaysUntilTheModeChanges(t *testing.T) {
	s := newSession(t, "workspace-write")
	says := func(message string, want ...string) {
		t.Helper()
		s.ask(message)
		results := s.results()
		last := results[len(results)-1]
		if !containsAll(last, want) {
			t.Errorf("%q gave %q, want %q", message, last, want)
		}
	}
	says("open a terminal", "(the terminal main is open)")
	says("type a command", "sum=42", "(the terminal main is open)")
	says("read the terminal", "(the terminal main is open)")
	if got := must(t)(s.sh("cat /workspace/typed")); got != "sum=42\n" {
		t.Errorf("the command wrote %q", got)
	}
	says("type a writer", "(the terminal main is open)")
	eventually(t, "the writer runs", func() bool {
		out, err := s.sh("stat -c %s /workspace/ticks")
		return err == nil && strings.TrimSpace(out) != "0"
	})
	s.switchTo("read-only")
	sizes := strings.Fields(must(t)(s.sh("stat -c %s /workspace/ticks; sleep 0.1; stat -c %s /workspace/ticks")))
	if len(sizes) != 2 || sizes[0] != sizes[1] {
		t.Errorf("the file grew from %v after the narrowing was confirmed", sizes)
	}
	says("type a command", "The terminal main is gone: the sandbox was narrowed")
	says("read the terminal", "There is no terminal main")
	says("open a terminal", "(the terminal main is open)")
	says("type a command", "Read-only file system", "sum=42")
	s.switchTo("workspace-write")
	says("type a command", "The terminal main is gone: the sandbox was widened")
	says("open a terminal", "(the terminal main is open)")
	says("type a command", "sum=42")
	s.verifyLog()
}
