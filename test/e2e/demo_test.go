// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"testing"
)

// The demo checks each of its own claims and exits with 1 if one does not hold.
func TestTheDemoHolds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/demo", "--repository", setup.Repository, "--tag", setup.Tag)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the demo failed: %v", err)
	}
}
