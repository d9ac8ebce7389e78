// SPDX-License-Identifier: Apache-2.0

package call

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Exec is the second stage. The caller must have locked its goroutine to its thread:
// restrictions belong to a thread, and exec keeps those of the thread that calls it.
// It returns only if the program could not be started, with the exit status.
func Exec() int {
	order := os.NewFile(fdOrder, "order")
	report := os.NewFile(fdReport, "report")
	fail := func(err error) int {
		_, _ = report.Write(append([]byte{failMark}, err.Error()...)) // without a reader there is nobody to tell
		return FailedStatus
	}
	o, err := readOrder(order)
	if err != nil {
		return fail(err)
	}
	p, err := programFor(o)
	if err != nil {
		return fail(err)
	}
	if err := confine(o, p); err != nil {
		return fail(err)
	}
	if _, err := report.Write([]byte{readyMark}); err != nil {
		return FailedStatus
	}
	var answer [1]byte
	if _, err := order.Read(answer[:]); err != nil || answer[0] != goMark {
		return FailedStatus // the call was withdrawn
	}
	return fail(fmt.Errorf("executing %s: %w", p.argv[0], unix.Exec(p.path, p.argv, p.env)))
}

// confine does everything that comes before exec, the restrictions in the order in
// which each still permits the next.
func confine(o Order, p program) error {
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("starting a session: %w", err)
	}
	if err := os.Chdir(o.Workspace); err != nil {
		return fmt.Errorf("entering the workspace: %w", err)
	}
	if err := standardInput(p.stdin); err != nil {
		return err
	}
	if err := sandbox.Limit(); err != nil {
		return err
	}
	if err := sandbox.ForbidPrivileges(); err != nil {
		return err
	}
	if err := sandbox.Confine(o.Profile, o.Workspace); err != nil {
		return err
	}
	// Where the profile does not let it, there is no home directory.
	_ = os.Mkdir(wire.HomeDir, 0o700)
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	if err := sandbox.InstallFilter(o.Profile); err != nil {
		return err
	}
	return sandbox.Test(o.Profile, o.Workspace)
}

// standardInput never is a socket: bash would take it for a remote shell's and read start-up files.
func standardInput(b []byte) error {
	if b == nil {
		return nil // /dev/null, from the stage before
	}
	f, err := memory(b)
	if err != nil {
		return err
	}
	err = unix.Dup3(int(f.Fd()), 0, 0)
	return errors.Join(err, f.Close())
}
