// SPDX-License-Identifier: Apache-2.0

// Package leaktest looks, when the tests of a package are over, for what they have left:
// goroutines, and processes that are children of theirs. It knows nothing of the tests.
package leaktest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience is how long what has been told to end may take.
const patience = 10 * time.Second

// Run runs the tests of a package and returns how its program is to exit: a leak fails
// tests that passed.
func Run(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code // whatever failed may have left something
	}
	if err := errors.Join(children(patience), goleak.Find()); err != nil {
		fmt.Fprintf(os.Stderr, "the tests left something: %v\n", err)
		return 1
	}
	return 0
}

// children waits so long at most until this process has no child that lives. One that has ended and was not
// waited for is a leak too, and is not collected here: WNOWAIT.
func children(patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if errors.Is(err, unix.ECHILD) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("looking for children: %w", err)
		}
		if time.Now().After(end) {
			return errors.New("a child process that nobody has waited for")
		}
	}
}
