// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Level is how much of the modes a node can enforce.
type Level string

const (
	LevelFull  Level = "Full"  // Landlock ABI 6 and seccomp
	LevelFiles Level = "Files" // Landlock ABI 3 to 5 and seccomp: one call at a time
	LevelMount Level = "Mount" // seccomp and the read-only mount: the mode read-only alone
	LevelNone  Level = "None"  // no tool runs
)

// levels from the least to the most. What is not in it counts as the least.
var levels = []Level{LevelNone, LevelMount, LevelFiles, LevelFull}

func (l Level) rank() int { return max(0, slices.Index(levels, l)) }

// AtLeast reports whether l enforces what m does. A level that is not known enforces nothing.
func (l Level) AtLeast(m Level) bool { return l.rank() >= m.rank() }

// LevelFor is the least level on which calls of a mode may run.
func LevelFor(m policy.Mode) Level {
	if m == policy.ReadOnly {
		return LevelMount
	}
	return LevelFiles
}

// LevelNeeded is the level that tools containers must prove before any call starts: what the
// class demands, and no less than the mode needs. A demand that is not known is the highest.
func LevelNeeded(minimum Level, m policy.Mode) Level {
	if minimum == LevelNone || !slices.Contains(levels, minimum) {
		minimum = LevelFull
	}
	if need := LevelFor(m); !minimum.AtLeast(need) {
		return need
	}
	return minimum
}
