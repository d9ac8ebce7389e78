// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
)

// A file that somebody changed since the model read it last is not edited, also when the agent was killed in
// between; once it was read again it is.
func TestAnEditOfWhatWasChangedIsRefused(t *testing.T) {
	p := newPod(t)
	write := func(text string) {
		if err := os.WriteFile(p.workspace("notes.txt"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p.workspace("notes.txt"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	p.switchTo(policy.WorkspaceWrite)
	write("one two three\n")
	p.say("look at it")
	p.restartAgent()
	write("one two and more\n")
	p.say("edit it")
	p.say("look at it")
	p.say("edit it")
	write("two of them\n")
	p.say("edit it") // the edit before is what the model knows
	results := p.results()
	for i, want := range []string{"one two three", "changed since you read it last; read it again", "one two and more", "edited", "changed since you read it last"} {
		if !strings.Contains(results[i].Text, want) || strings.Contains(results[i].Text, "\x00") {
			t.Errorf("result %d is %q, want it to say %q", i+1, results[i].Text, want)
		}
	}
	if got, err := os.ReadFile(p.workspace("notes.txt")); err != nil || string(got) != "two of them\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// What a result leaves out is read back by its call's name, also when the agent was killed in between.
func TestALongOutputIsReadBack(t *testing.T) {
	p := newPod(t)
	p.switchTo(policy.ReadOnly)
	p.say("count")
	p.restartAgent()
	p.say("read it back")
	results := p.results()
	if !strings.Contains(results[0].Text, "the tool read has all of it as output:1.1.1") || len(results[0].Text) > 40<<10 {
		t.Errorf("the result has %d bytes: %.100q", len(results[0].Text), results[0].Text)
	}
	if got := results[1].Text; got != "54321\n54322\n[lines 54321 to 54322 of 100000]\n" {
		t.Errorf("read back: %q", got)
	}
}

// restartAgent kills the agent and starts another one.
func (p *pod) restartAgent() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait()
	p.startAgent()
}
