// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the promises of the sandbox modes as values: what is tried,
// through which tool, and what must come of it in each mode. It tries them on a real
// kernel, and after every refusal looks at the world: a refusal that changed something
// is a failure. It knows nothing of how the sandbox is made.
package conformance

import (
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Result is how one call ended.
type Result struct {
	wire.Exited
	Output string
}

// Caller runs calls: through a supervisor, or by itself.
type Caller interface {
	Call(p policy.Profile, tool, arguments string) (Result, error)
}

// Place is where the rows are tried, as the calls see it.
type Place struct {
	Toolbox   string // the binary
	Workspace string // writable for whoever prepares the fixtures
	Outside   string // a writable directory that is neither workspace nor temporary, owned by the calls' user; may be missing
	Host      Host   // where a path of the calls is for this process
	User      int    // who owns the fixtures; -1 leaves them as created
	NoScopes  bool   // the kernel's Landlock has no scopes: what only they refuse is not tried
}

// Verdict is what came of a row in a mode.
type Verdict string

const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip" // Why says which capability is missing
)

// Finding is one line of a report.
type Finding struct {
	Row     string
	Mode    policy.Mode
	Verdict Verdict
	Why     string
}
