// SPDX-License-Identifier: Apache-2.0

// Package attempt tries single operations by raw system calls, so that what is tried
// depends neither on the programs of the tools image nor on a library's fallbacks. It
// runs inside the sandbox of a call and judges nothing.
package attempt

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Exit statuses of an attempt.
const (
	StatusDone   = 0
	StatusDenied = 10 // the output names the error
	StatusBroken = 20 // it could not be tried
)

// errBroken marks an attempt that says nothing about the sandbox.
var errBroken = errors.New("the attempt itself is broken")

type operation func(args []string) error

// Run tries the operation that args name and says what came of it.
func Run(args []string, out io.Writer) int {
	if len(args) == 0 {
		_, _ = fmt.Fprintln(out, "operations:", strings.Join(Names(), " "))
		return StatusBroken
	}
	op, ok := operations()[args[0]]
	if !ok {
		_, _ = fmt.Fprintf(out, "there is no operation %q\n", args[0])
		return StatusBroken
	}
	err := op(args[1:])
	var errno unix.Errno
	switch {
	case err == nil:
		_, _ = fmt.Fprintln(out, "done")
		return StatusDone
	case errors.Is(err, errBroken) || !errors.As(err, &errno):
		_, _ = fmt.Fprintln(out, "broken:", err)
		return StatusBroken
	default:
		_, _ = fmt.Fprintln(out, "denied", unix.ErrnoName(errno))
		return StatusDenied
	}
}

// Names lists the operations.
func Names() []string { return slices.Sorted(maps.Keys(operations())) }

func operations() map[string]operation {
	all := map[string]operation{}
	for _, some := range []map[string]operation{fileOperations, metadataOperations, socketOperations, processOperations, kernelOperations} {
		maps.Copy(all, some)
	}
	return all
}

// on makes an operation on one path.
func on(do func(path string) error) operation {
	return func(args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: one path is needed", errBroken)
		}
		return do(args[0])
	}
}

// onTwo makes an operation on two paths.
func onTwo(do func(a, b string) error) operation {
	return func(args []string) error {
		if len(args) != 2 {
			return fmt.Errorf("%w: two paths are needed", errBroken)
		}
		return do(args[0], args[1])
	}
}

// plain makes an operation without arguments.
func plain(do func() error) operation {
	return func([]string) error { return do() }
}

// onReadOnly makes an operation on a descriptor that was opened for reading only.
func onReadOnly(do func(fd int) error) operation {
	return on(func(path string) error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%w: opening %s: %w", errBroken, path, err)
		}
		defer unix.Close(fd)
		return do(fd)
	})
}

func raw(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// closing drops a descriptor that an attempt should not have got.
func closing(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}
