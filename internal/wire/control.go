// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Names in a tools container's control directory.
const (
	SocketName = "agent.sock"
	LockName   = "lock"
)

// The tools containers.
const (
	ToolsRO = "tools-ro"
	ToolsRW = "tools-rw"
)

// ContainerFor returns the tools container that runs calls of a profile.
func ContainerFor(p policy.Profile) string {
	if p.Mode == policy.ReadOnly {
		return ToolsRO
	}
	return ToolsRW
}

// Epoch numbers the times between two changes of the policy. Epochs of a later boot are greater.
type Epoch struct {
	Boot    uint64 `json:"boot"` // sequence number of the boot event
	Counter uint64 `json:"counter"`
}

// Before reports whether e is earlier than f.
func (e Epoch) Before(f Epoch) bool {
	return e.Boot < f.Boot || e.Boot == f.Boot && e.Counter < f.Counter
}

func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Boot, e.Counter) }

// Frame is one message on the control socket: exactly one member is set.
//
// There are two connections. The first frame of a supervisor is hello (with the
// lock's descriptor) on the control connection; the agent answers welcome, whose
// token opens the data connection: attach is its first frame. Output travels on the
// data connection alone, as far as credit has been given.
type Frame struct {
	// Supervisor to agent, control connection.
	Hello       *Hello       `json:"hello,omitempty"`
	Started     *Started     `json:"started,omitempty"`
	Exited      *Exited      `json:"exited,omitempty"`
	Narrowed    *Narrowed    `json:"narrowed,omitempty"`
	Terminating *Terminating `json:"terminating,omitempty"`

	// Agent to supervisor, control connection.
	Welcome *Welcome `json:"welcome,omitempty"`
	Start   *Start   `json:"start,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Narrow  *Narrow  `json:"narrow,omitempty"`
	Widen   *Widen   `json:"widen,omitempty"`

	// Data connection.
	Attach *Attach `json:"attach,omitempty"` // from the supervisor
	Output *Output `json:"output,omitempty"` // from the supervisor
	Credit *Credit `json:"credit,omitempty"` // from the agent
}

// Hello is how a supervisor introduces itself, once its container is empty. The
// descriptor of the lock it holds travels beside the frame (SCM_RIGHTS).
type Hello struct {
	Wire        int         `json:"wire"`
	Container   string      `json:"container"`
	Boot        string      `json:"boot"` // random, new in every process
	Enforcement Enforcement `json:"enforcement"`
}

// Welcome accepts a supervisor. Nothing starts before it.
type Welcome struct {
	Wire  int            `json:"wire"`
	Token string         `json:"token"` // for Attach
	Epoch Epoch          `json:"epoch"`
	Bound policy.Profile `json:"bound"` // no call may run wider
}

// Start starts one tool call.
type Start struct {
	Call      string         `json:"call"` // the agent's name of the call, unique in the session
	Epoch     Epoch          `json:"epoch"`
	Profile   policy.Profile `json:"profile"`
	Tool      string         `json:"tool"`
	Arguments string         `json:"arguments"` // the canonical JSON, byte by byte
	Digest    string         `json:"digest"`    // tool.DigestOf(Tool, Arguments)
	Workspace string         `json:"workspace"`
	Limits    Limits         `json:"limits"`
	// Version is that of the file as the model knows it, or tool.AnyVersion where it does not: an edit of
	// another one is refused, and the tool tells which version there is now. Empty: nobody asks.
	Version string `json:"version,omitempty"`
	// Granted lets this one call have a wider mode than the bound: a person said so. It runs
	// alone in its container, which is swept when it ends.
	Granted bool `json:"granted,omitempty"`
}

// Limits bound one call. A zero means the supervisor's own maximum.
type Limits struct {
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`
	OutputBytes   int64 `json:"outputBytes,omitempty"` // the call is ended beyond it
}

// Started says that the call has passed every check and runs.
type Started struct {
	Call string `json:"call"`
}

// Stop ends one call: the turn was cancelled.
type Stop struct {
	Call string `json:"call"`
}

// Exited is the end of a call. Nothing that it started lives any more, and all its output was sent.
type Exited struct {
	Call        string `json:"call"`
	Cause       Cause  `json:"cause"`
	Status      int    `json:"status"`           // exit status, when Cause is Finished
	Signal      string `json:"signal,omitempty"` // that ended it, when Cause is Finished
	Denial      Denial `json:"denial,omitempty"` // what the toolbox itself denied
	Detail      string `json:"detail,omitempty"` // for the model: what was wrong, when it did not run or was denied
	OutputBytes int64  `json:"outputBytes"`      // that were sent
	Processes   int    `json:"processes"`        // left over by the command and ended with it
	// OutOfMemory says that the kernel ended a process of the container while the call ran, because
	// the container's memory was used up. Who is hit is the kernel's choice: with calls beside it,
	// it may have been one of theirs.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
}

// Cause is why a call ended.
type Cause string

const (
	Finished    Cause = "finished"
	TimedOut    Cause = "timedOut"
	Cancelled   Cause = "cancelled"
	Narrowing   Cause = "narrowed"    // stopped: the sandbox was narrowed
	OutputLimit Cause = "outputLimit" // it wrote more than it may
	Refused     Cause = "refused"     // not started: stale epoch, too wide a profile, bad arguments
	SetupFailed Cause = "setupFailed" // not started: a layer of the sandbox could not be put up
)

// Denial is the kind of a denial by the toolbox.
type Denial string

const (
	DeniedWrite   Denial = "write"   // the sandbox refused a modification
	DeniedRead    Denial = "read"    // the sandbox or the file's permissions refused to read
	DeniedProfile Denial = "profile" // the profile of the call is not admitted here
)

// Narrow stops what is wider than the bound: nothing starts, everything in the
// container is ended, and only then narrowed is answered. With a grace, what runs is
// asked to end (SIGTERM) and killed when the grace is over, or as soon as nothing is left.
type Narrow struct {
	Epoch Epoch          `json:"epoch"`
	Bound policy.Profile `json:"bound"`
	Grace int64          `json:"grace,omitempty"` // seconds, at most MaxGraceSeconds
}

// MaxGraceSeconds is the longest grace of a narrowing.
const MaxGraceSeconds = 60

// Narrowed says that nothing of an earlier epoch lives in the container. The
// supervisor judged by /proc, not by what it sent signals to.
type Narrowed struct {
	Epoch  Epoch `json:"epoch"`
	Killed int   `json:"killed"` // processes that were ended for it
}

// Widen raises the bound. Nothing is ended and nothing is answered: frames are taken in order.
type Widen struct {
	Epoch Epoch          `json:"epoch"`
	Bound policy.Profile `json:"bound"`
}

// Terminating says that the supervisor was asked to end and its container is empty.
type Terminating struct{}

// Attach opens the data connection.
type Attach struct {
	Token string `json:"token"`
}

// Output is a piece of what a call wrote, standard output and standard error in one.
type Output struct {
	Call string `json:"call"`
	Data []byte `json:"data"`
}

// Credit lets a call send that many bytes more. A call begins with InitialCredit.
type Credit struct {
	Call  string `json:"call"`
	Bytes int64  `json:"bytes"`
}

// Sizes of the control protocol, in bytes.
const (
	InitialCredit = 256 << 10
	MaxChunk      = 32 << 10
	MaxFrame      = 4 << 20
)
