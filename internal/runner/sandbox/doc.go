// SPDX-License-Identifier: Apache-2.0

// Package sandbox turns a profile into restrictions of the calling thread:
// Landlock domains, one seccomp filter and resource limits, and tests on the spot
// that they hold. It is called only in processes that exist to be confined and to
// exec, never in the supervisor: what it does to a thread cannot be undone. It
// knows nothing about tools, calls or agents.
package sandbox

import (
	"fmt"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Admit says whether a profile can be enforced by this build. Whatever it does not
// know is refused: a profile is never rounded to the nearest one.
func Admit(p policy.Profile) error {
	switch p.Mode {
	case policy.ReadOnly, policy.WorkspaceWrite, policy.DangerFullAccess:
	default:
		return fmt.Errorf("the sandbox mode %s is not known here", p.Mode)
	}
	switch p.Network {
	case policy.NetworkNone, policy.NetworkOpen:
		return nil
	}
	return fmt.Errorf("the network setting %s is not known here", p.Network)
}
