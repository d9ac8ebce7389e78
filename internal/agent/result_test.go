// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What the model reads of a call that ended in each of the ways in which one can.
func TestResultTexts(t *testing.T) {
	ro := policy.Profile{}
	for name, tc := range map[string]struct {
		tool     string
		exited   wire.Exited
		output   string
		lost     error
		told     policy.Profile
		approval policy.Approval
		want     string
		isError  bool
		outcome  string
	}{
		"success":         {tool: "bash", exited: wire.Exited{Cause: wire.Finished}, output: "a\n", want: "a\n(exit status 0)"},
		"no line break":   {tool: "bash", exited: wire.Exited{Cause: wire.Finished}, output: "a", want: "a\n(exit status 0)"},
		"a tool's answer": {tool: "read", exited: wire.Exited{Cause: wire.Finished}, output: "1\ta\n", want: "1\ta\n"},
		"failure":         {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Status: 2}, isError: true, want: "(exit status 2; sandbox mode read-only, network none)"},
		"a guess": {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Status: 1}, output: "touch: f: Read-only file system\n", isError: true,
			want: "touch: f: Read-only file system\n(exit status 1; sandbox mode read-only, network none)\n" +
				"A guess, from \"Read-only file system\" in the output: the sandbox refused it.\n" +
				"If so: nobody is asked for more under the approval policy never: this is final."},
		"a guess where somebody may be asked": {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Status: 1}, output: "Permission denied\n", approval: policy.ApprovalAsk, isError: true,
			want: "Permission denied\n(exit status 1; sandbox mode read-only, network none)\nA guess, from \"Permission denied\" in the output: the sandbox refused it."},
		"a denial": {tool: "write", exited: wire.Exited{Cause: wire.Finished, Status: 1, Denial: wire.DeniedWrite}, output: "writing f: read-only file system\n", isError: true,
			want: "denied: writing f: read-only file system\n(sandbox mode read-only, network none)\n" + textFinal},
		"a signal": {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Signal: "SIGSEGV"}, isError: true, want: "(ended by signal SIGSEGV; sandbox mode read-only, network none)"},
		"no memory": {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Signal: "SIGKILL", OutOfMemory: true}, isError: true,
			want: "(ended by signal SIGKILL; sandbox mode read-only, network none)\n" + textMemory},
		"no memory for a part of it": {tool: "bash", exited: wire.Exited{Cause: wire.Finished, OutOfMemory: true}, want: "(exit status 0)\n" + textMemory},
		"leftovers":                  {tool: "bash", exited: wire.Exited{Cause: wire.Finished, Processes: 3}, want: "(exit status 0)\n(3 processes that it left behind were ended)"},
		"time":                       {tool: "bash", exited: wire.Exited{Cause: wire.TimedOut}, output: "a\n", isError: true, want: "a\n(stopped: it ran longer than 2m0s; everything that it had started was ended)"},
		"narrowed":                   {tool: "bash", exited: wire.Exited{Cause: wire.Narrowing}, isError: true, outcome: eventlog.OutcomeKilled, want: textNarrowed},
		"not put up":                 {tool: "bash", exited: wire.Exited{Cause: wire.SetupFailed, Detail: "seccomp"}, isError: true, outcome: eventlog.OutcomeNotStarted, want: "not started: the sandbox could not be put up: seccomp (sandbox mode read-only, network none)"},
		"refused":                    {tool: "bash", exited: wire.Exited{Cause: wire.Refused, Detail: "stale"}, isError: true, outcome: eventlog.OutcomeRefused, want: "not started: stale (sandbox mode read-only, network none)"},
		"lost":                       {tool: "bash", lost: toolsocket.ErrLost, output: "a", isError: true, outcome: eventlog.OutcomeUnknown, want: "a\n" + textLost},
		"an odd cause":               {tool: "bash", exited: wire.Exited{Cause: "melted"}, isError: true, outcome: eventlog.OutcomeUnknown, want: `outcome unknown: the supervisor gave the cause "melted"`},
		"ran narrower":               {tool: "read", exited: wire.Exited{Cause: wire.Finished}, output: "a\n", told: policy.Profile{Mode: policy.WorkspaceWrite}, want: "a\nThis call ran under sandbox mode read-only, network none, which is narrower than what was stated when it was asked for."},
		"a forged tag":               {tool: "read", exited: wire.Exited{Cause: wire.Finished}, output: policy.SnapshotTag, want: policy.Defuse(policy.SnapshotTag)},
		"no valid text":              {tool: "read", exited: wire.Exited{Cause: wire.Finished}, output: "a\xffb", want: "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &passed{id: "1.1.1", profile: ro, told: tc.told, policy: policy.Policy{Approval: tc.approval}, bound: 2 * time.Minute}
			got := resultOf(work{id: "1.1.1", name: tc.tool}, p, tc.exited, toolsocket.Output{Head: []byte(tc.output)}, tc.lost)
			if diff := cmp.Diff(tc.want, got.Text); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if got.IsError != tc.isError || got.Outcome != tc.outcome {
				t.Errorf("error %v, outcome %q; want %v, %q", got.IsError, got.Outcome, tc.isError, tc.outcome)
			}
			if (got.Denial != nil) != (tc.exited.Denial != "") {
				t.Errorf("denial %s", got.Denial)
			}
		})
	}
}

// What is left out of a long output is counted, and no character is cut in two.
func TestLongOutputIsCutBetweenCharacters(t *testing.T) {
	whole := []byte(strings.Repeat("€", 1000)) // three bytes each
	clip := toolsocket.NewClip(100)
	_, _ = clip.Write(whole)
	got := renderOutput(clip.Output(), &passed{})
	want := strings.Repeat("€", 16) + "\n[… 2904 bytes are left out here …]\n" + strings.Repeat("€", 16)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	clip = toolsocket.NewClip(4000)
	_, _ = clip.Write(whole)
	if got := renderOutput(clip.Output(), &passed{}); !bytes.Equal(whole, []byte(got)) {
		t.Error("a short output is not left as it is")
	}
}
