// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Step is one system call of a plan, and what must come of it. A plan is made in one
// process and performed in a child of it that has just been forked, where nothing of
// the Go runtime works: so it is nothing but numbers.
type Step struct {
	What   string // for the report, should another thing come of it
	Number uintptr
	Args   [6]uintptr
	Want   [2]unix.Errno // it must fail with one of these; without any it must succeed
	Any    bool          // whatever comes of it
	Undo   *Step         // what to do should it succeed although it must fail
	Keep   any           // what the arguments point to
}

func args(a ...uintptr) (all [6]uintptr) {
	copy(all[:], a)
	return all
}

// address is where a value lies. Values on the heap stay there as long as Keep holds them.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// withPath is a step whose argument at a place is a path. It must hold no zero byte.
func (s Step) withPath(at int, path string) Step {
	b := append([]byte(path), 0)
	s.Args[at], s.Keep = address(&b[0]), b
	return s
}

// OnPath is a step that takes a path as its first argument.
func OnPath(what string, number uintptr, path string, more ...uintptr) Step {
	return Step{What: what, Number: number, Args: args(append([]uintptr{0}, more...)...)}.withPath(0, path)
}

// Call is a step that must succeed.
func Call(what string, number uintptr, a ...uintptr) Step {
	return Step{What: what, Number: number, Args: args(a...)}
}
