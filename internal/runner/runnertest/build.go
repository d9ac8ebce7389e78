// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the toolbox as it is shipped, or with a layer left out.
func Build(dir, mutation string) (string, error) {
	out := filepath.Join(dir, "toolbox"+strings.ReplaceAll(mutation, " ", "-"))
	args := []string{"build", "-o", out}
	if mutation != "" {
		args = append(args, "-tags", "mutation",
			"-ldflags", "-X 'github.com/agentsession-dev/operator/internal/runner/sandbox.mutation="+mutation+"'")
	}
	cmd := exec.Command("go", append(args, "github.com/agentsession-dev/operator/cmd/toolbox")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the toolbox: %w\n%s", err, b)
	}
	return out, os.Chmod(out, 0o755)
}
