// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
)

func TestLevelNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		minimum Level
		mode    policy.Mode
		want    Level
	}{
		"the class demands more than the mode": {LevelFull, policy.ReadOnly, LevelFull},
		"the mode needs more than the class":   {LevelMount, policy.WorkspaceWrite, LevelFiles},
		"read-only by the mount":               {LevelMount, policy.ReadOnly, LevelMount},
		"nothing was demanded":                 {"", policy.ReadOnly, LevelFull},
		"None is no demand":                    {LevelNone, policy.ReadOnly, LevelFull},
		"an unknown demand":                    {"Most", policy.ReadOnly, LevelFull},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LevelNeeded(tc.minimum, tc.mode); got != tc.want {
				t.Errorf("LevelNeeded() = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAnUnknownLevelEnforcesNothing(t *testing.T) {
	for _, l := range []Level{"", "full", "Most", LevelNone} {
		for _, m := range policy.Modes() {
			if l.AtLeast(LevelFor(m)) {
				t.Errorf("the level %q enforces %s", l, m)
			}
		}
	}
}
