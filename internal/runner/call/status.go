// SPDX-License-Identifier: Apache-2.0

package call

import (
	"github.com/agentsession-dev/operator/internal/runner/tools"
	"github.com/agentsession-dev/operator/internal/wire"
)

// FileToolStatus reads the exit status of a file tool: what the agent is told, and
// whether the sandbox denied what the tool was to do.
func FileToolStatus(status int) (int, wire.Denial) {
	switch status {
	case tools.StatusOK:
		return 0, ""
	case tools.StatusDeniedWrite:
		return 1, wire.DeniedWrite
	case tools.StatusDeniedRead:
		return 1, wire.DeniedRead
	}
	return 1, ""
}
