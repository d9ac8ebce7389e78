// SPDX-License-Identifier: Apache-2.0

package leaktest

import (
	"os/exec"
	"testing"
	"time"
)

// What has been waited for is no leak; what lives, or has ended unseen, is one.
func TestChildren(t *testing.T) {
	if err := children(patience); err != nil {
		t.Fatalf("without a child: %v", err)
	}
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if children(20*time.Millisecond) == nil {
		t.Error("a child that lives is not seen")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if c.Wait() == nil {
		t.Error("it ended by itself")
	}
	if err := children(patience); err != nil {
		t.Errorf("after the last child: %v", err)
	}
}
