// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// PrepareTerminal makes the rules of a profile for one call, which may also open the
// terminal that it is given again. Close them when the call has been started.
func PrepareTerminal(p policy.Profile, workspace string, terminal int) (*Prepared, error) {
	if err := checkTerminal(terminal); err != nil {
		return nil, err
	}
	ready, err := Prepare(p, workspace)
	if err != nil || ready.ruleset < 0 || p.Mode == policy.DangerFullAccess {
		return ready, err
	}
	abi, err := landlockABI()
	if err == nil {
		// Of this one device alone: no path below /dev/pts is in any rule.
		access := fsNode & knownTo(abi, &ll.RulesetAttr{HandledAccessFS: fsAll}).HandledAccessFS
		err = ll.LandlockAddPathBeneathRule(ready.ruleset, &ll.PathBeneathAttr{ParentFd: terminal, AllowedAccess: access}, 0)
	}
	if err != nil {
		ready.Close()
		return nil, fmt.Errorf("adding a Landlock rule for the terminal: %w", err)
	}
	return ready, nil
}

// Close lets go of the rules. Who has entered them stays bound.
func (r *Prepared) Close() {
	if r.ruleset >= 0 {
		_ = unix.Close(r.ruleset)
		r.ruleset = -1
	}
}

// checkTerminal takes only a command's end of a terminal: whoever has the other one could
// type, and make more of them.
func checkTerminal(fd int) error {
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return fmt.Errorf("what was given is no terminal: %w", err)
	}
	if _, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN); !errors.Is(err, unix.ENOTTY) {
		return errors.New("what was given is the wrong end of a terminal")
	}
	return nil
}
