// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/policy"
)

func offeredTo(t *testing.T, r chatRequest) (names []string) {
	t.Helper()
	var body struct {
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal(r.raw, &body); err != nil {
		t.Fatal(err)
	}
	for _, x := range body.Tools {
		names = append(names, x.Function.Name)
	}
	return names
}

// The model is offered what the class says, always in the same order; a call of another tool is refused and
// says which there are. A change leaves the requests of a running agent as they are, and holds from its next
// start.
func TestTheToolsThatAreOffered(t *testing.T) {
	model := newEndpoint(t, func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "I see"}
		}
		return reply{calls: []chatCall{bash("c1", "ls")}}
	})
	s := start(t, model, echo("files", 0), func(s *session) { s.desired.Config.Tools = []string{"grep", "of another version", "read"} })
	s.switchTo(policy.ReadOnly)
	started := func() int { return len(s.ro.Starts()) + len(s.rw.Starts()) }

	s.say("m1", "go")
	first := model.seen()
	if diff := cmp.Diff([]string{"read", "grep"}, offeredTo(t, first[0])); diff != "" {
		t.Errorf("what is offered (-want +got):\n%s", diff)
	}
	const want = `there is no tool named "bash" in this session; the tools are read, grep`
	if got := first[1].last().Content; !strings.Contains(got, want) || started() != 0 {
		t.Errorf("the result is %q after %d calls that were started, want %q and none", got, started(), want)
	}

	s.desired.Config.Tools = nil
	s.say("m2", "go on")
	seen := model.seen()
	if diff := cmp.Diff([]string{"read", "grep"}, offeredTo(t, seen[len(seen)-1])); diff != "" || started() != 0 {
		t.Errorf("after a change, with %d calls that were started (-want +got):\n%s", started(), diff)
	}

	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.switchTo(policy.ReadOnly)
	s.say("m3", "go on")
	seen = model.seen()
	if names := offeredTo(t, seen[len(seen)-1]); len(names) != 7 || started() != 1 {
		t.Errorf("after a start the tools are %q, and %d calls were started; want all, and 1", names, started())
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}

// A model that cannot read back what a call wrote is not told to.
func TestACutOutputThatCannotBeReadBackSaysSo(t *testing.T) {
	for tools, want := range map[string]bool{"bash": false, "bash read": true} {
		model := newEndpoint(t, func(_ int, r chatRequest) reply {
			if r.lastSaid().Role == "tool" {
				return reply{text: "I see"}
			}
			return reply{calls: []chatCall{bash("c1", "yes")}}
		})
		s := start(t, model, echo(strings.Repeat("yes\n", 1<<18), 0), func(s *session) { s.desired.Config.Tools = strings.Fields(tools) })
		s.switchTo(policy.ReadOnly)
		s.say("m1", "go")
		got := model.seen()[1].last().Content
		if !strings.Contains(got, "bytes are left out here") || strings.Contains(got, "the tool read has all of it") != want {
			t.Errorf("with the tools %s the result has %d bytes; it should name the tool read: %t", tools, len(got), want)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
