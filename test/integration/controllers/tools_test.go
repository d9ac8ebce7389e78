// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// What a class offers reaches the agent; a change does, too, and is no reason for another pod.
func TestTheToolsOfAClass(t *testing.T) {
	b := newBench(t)
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Tools = []v1alpha1.ToolName{"read", "grep"} })
	b.ready(v1alpha1.ModeReadOnly)
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Tools = nil })
	b.step()
	pushes := b.agent.Pushes()
	if diff := cmp.Diff([]string{"read", "grep"}, pushes[0].Config.Tools); diff != "" {
		t.Errorf("the agent was told of the tools (-want +got):\n%s", diff)
	}
	if last := pushes[len(pushes)-1].Config.Tools; last != nil {
		t.Errorf("after the change the agent was told of %q", last)
	}
	b.wants("Outdated=False/Current", "Ready=True/Running")
	b.quiet()
}
