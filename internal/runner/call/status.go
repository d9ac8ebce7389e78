// SPDX-License-Identifier: Apache-2.0

package call

import (
	"github.com/agentsession-dev/operator/internal/runner/tools"
	"github.com/agentsession-dev/operator/internal/wire"
)

// FileToolStatus reads how a file tool ended: the status that the agent is told, and
// whether the sandbox denied what the tool was to do.
func FileToolStatus(e End) (int, wire.Denial) {
	if e.Signal != "" {
		return 1, ""
	}
	switch e.Status {
	case tools.StatusOK:
		return 0, ""
	case tools.StatusDeniedWrite:
		return 1, wire.DeniedWrite
	case tools.StatusDeniedRead:
		return 1, wire.DeniedRead
	}
	return 1, ""
}
