// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance/attempt"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Every row can fail in every mode: by the opposite of what was promised, by a call that did not come to its end, by
// a world that changed although it was refused, and by one that did not although it was allowed.
func TestEveryRowCanFail(t *testing.T) {
	at := Place{Toolbox: "/toolbox/toolbox", Workspace: "/workspace", Outside: "/outside"}
	same, other := State{"/workspace/file": "a"}, State{"/workspace/file": "b"}
	ended := func(status int, output string) Result {
		return Result{Exited: wire.Exited{Cause: wire.Finished, Status: status}, Output: output}
	}
	for _, m := range policy.Modes() {
		todo, without, err := Attempts(at, m)
		if err != nil || len(todo) < 100 || len(without) != 0 {
			t.Fatalf("%s: %d attempts, without %v, %v", m, len(todo), without, err)
		}
		for _, a := range todo {
			w := a.Row.want(m)
			fails := func(how string, r Result, after State) {
				if f := a.Judge(r, same, after); f.Verdict != Fail || f.Why == "" {
					t.Errorf("%s: %s: %s, and the verdict is %q", m, a.Row.Name, how, f.Verdict)
				}
			}
			denied := ended(attempt.StatusDenied, "denied EPERM")
			if len(w.Errors) > 0 {
				denied.Output = "denied " + w.Errors[0]
			}
			denied.Denial = w.Denial
			fails("it did not come to an end", Result{Exited: wire.Exited{Cause: wire.SetupFailed}}, same)
			switch {
			case w.Killed:
				fails("it was done", ended(0, "done"), same)
				fails("it was refused and not killed", denied, same)
			case w.Allowed:
				fails("it was refused", denied, same)
				if a.Row.Changes {
					fails("it was done and changed nothing", ended(0, "done"), same)
				}
			default:
				fails("it was done", ended(0, "done"), other)
				fails("it was refused and the world changed", denied, other)
			}
		}
	}
}
