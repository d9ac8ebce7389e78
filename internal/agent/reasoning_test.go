// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Where the class says that the endpoint wants reasoning back it gets it, also after a restart; where
// it does not it stays in the log.
func TestReasoningGoesBackWhereItIsWanted(t *testing.T) {
	for name, wanted := range map[string]bool{"wanted": true, "not wanted": false} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, func(n int, r chatRequest) reply {
				if n == 1 {
					return reply{reasoning: "because of it", calls: []chatCall{bash("c1", "ls")}}
				}
				return reply{text: "ok"}
			})
			s := start(t, model, echo("f\n", 0))
			s.desired.Config.Model.ReturnReasoning = wanted
			s.switchTo(policy.ReadOnly)
			s.say("m1", "go")
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			s.boot()
			s.switchTo(policy.ReadOnly)
			s.say("m2", "go on")
			requests := model.seen()
			extends(t, requests)
			for i, r := range requests[1:] {
				if got := bytes.Contains(r.raw, []byte(`"reasoning_content":"because of it"`)); got != wanted {
					t.Errorf("request %d carries the reasoning: %v, want %v", i+2, got, wanted)
				}
			}
			s.lawful()
		})
	}
}
