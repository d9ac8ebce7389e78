// SPDX-License-Identifier: Apache-2.0

// Package call is the one path by which any tool runs. A process of its own watches
// over each call, and can reach all of it and nothing else:
//
//	supervisor ──────► init: own signal domain, subreaper ──────► child, a fork of init:
//	       order with the output's pipe, socket pair ──►          confines itself, tests it, execs
//	       ◄── started, or what was wrong
//	       a mark: let the call end by itself ──►
//	       half closed: end the call ──►
//	       ◄── end, once nothing of the call is left
//
// An init whose call is over has nothing left in its domain and can take the next
// order; a Pool keeps such. What has been started ahead of time dies with everything
// else when the container is swept.
//
// The child is forked without exec, so it has one thread, and performs a plan: system
// calls prepared in init as numbers (package sandbox). Go's runtime is not at work in it.
//
// The package decides how a call is started, watched and ended. It knows nothing of
// agents, epochs or credits. Any step that fails means that nothing of the call has run.
// docs/enforcement.md says the same in the words of who checks it.
package call

// fdOrders is init's end of the socket pair.
const fdOrders = 3

// easeMark is what init hears, beside orders: the call under way is to end by itself.
const easeMark = 'T'

// What init says: a mark, the length of a text, and the text.
const (
	startedMark = 'S'
	failMark    = 'F' // the text says why; nothing of the call has run or is left
	unfitMark   = 'U' // the same, because of what the call asks for
	endMark     = 'X' // the text is the End; nothing of the call is left
	lostMark    = 'L' // the text says why init ends; something of the call may be left
)

// FailedStatus is the exit status of a process that could not put up the sandbox.
const FailedStatus = 125

// self is this program, also when its file has been replaced since it started.
const self = "/proc/self/exe"
