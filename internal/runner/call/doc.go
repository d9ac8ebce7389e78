// SPDX-License-Identifier: Apache-2.0

// Package call is the one path by which any tool runs, in two stages beside the
// process that orders it:
//
//	supervisor ──► init: own signal domain, subreaper ──► exec: confines itself, tests it, waits, execs
//	           order and go-ahead, pipe ──────────────────►
//	           ◄────────────────────── ready, or what was wrong
//	           control, pipe ──► init
//	           ◄────── end, once nothing of the call is left
//
// It decides how a call is started, watched and ended. It knows nothing of agents,
// epochs or credits. Any step that fails means that nothing of the call has run.
package call

// Descriptors that the stages find open.
const (
	fdOrder   = 3 // read: the order, later one byte as the go-ahead
	fdReport  = 4 // write: readyMark, or failMark and a text; closed by exec
	fdControl = 5 // read, init only: a byte or its end means: end the call
	fdEnd     = 6 // write, init only: the End as JSON
)

const (
	readyMark = 'R'
	failMark  = 'E'
	goMark    = 'G'
)

// FailedStatus is the exit status of a stage that could not put up the sandbox.
const FailedStatus = 125

// self is this program, also when its file has been replaced since it started.
const self = "/proc/self/exe"
