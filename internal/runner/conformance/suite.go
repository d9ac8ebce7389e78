// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Run tries every row in the modes. The error is of the suite itself.
func Run(c Caller, at Place, modes ...policy.Mode) ([]Finding, error) {
	var findings []Finding
	for i, r := range Rows() {
		for _, m := range modes {
			f, err := run(c, at, i, r, m)
			if err != nil {
				return findings, fmt.Errorf("%s in %s: %w", r.Name, m, err)
			}
			if f.Why != notPromised {
				findings = append(findings, f)
			}
		}
	}
	return findings, nil
}

const notPromised = "not promised"

func skipped(r Row, m policy.Mode, at Place) string {
	switch {
	case r.want(m).skip:
		return notPromised
	case r.Outside && at.Outside == "":
		return "there is no writable directory outside the workspace"
	case r.InTerminal && at.NoScopes:
		return "there are no terminals without signal scopes (Landlock ABI 6)"
	case r.Layer == OfScopes && at.NoScopes:
		return "the kernel has no signal scopes (Landlock ABI 6)"
	}
	return ""
}

// Attempt is a row in one mode, ready to be tried: by Run, or by a caller that takes the calls of
// a mode all at once and looks at the world before and after.
type Attempt struct {
	Row       Row
	Mode      policy.Mode
	Arguments string // of the tool Row.Try.Tool
	Fixtures  Fixtures
}

// Attempts returns what is to be tried in a mode, and what is not.
func Attempts(at Place, m policy.Mode) (todo []Attempt, without []Finding, err error) {
	for i, r := range Rows() {
		switch why := skipped(r, m, at); why {
		case "":
			a, err := attemptOf(at, i, r, m)
			if err != nil {
				return nil, nil, err
			}
			todo = append(todo, a)
		case notPromised:
		default:
			without = append(without, Finding{r.Name, m, Skip, why})
		}
	}
	return todo, without, nil
}

func attemptOf(at Place, i int, r Row, m policy.Mode) (Attempt, error) {
	f := Fixtures{Dir: path.Join(at.Workspace, fmt.Sprintf("conformance-%d-%d", i, m))}
	if at.Outside != "" {
		f.Outside = path.Join(at.Outside, path.Base(f.Dir))
	}
	args, err := r.Try.arguments(strings.NewReplacer("{dir}", f.Dir, "{outside}", f.Outside, "{toolbox}", at.Toolbox))
	if err != nil {
		return Attempt{}, fmt.Errorf("the arguments of %q: %w", r.Name, err)
	}
	return Attempt{r, m, args, f}, nil
}

// run tries one row. The error is of the suite, as opposed to a promise that is broken.
func run(c Caller, at Place, i int, r Row, m policy.Mode) (f Finding, err error) {
	if why := skipped(r, m, at); why != "" {
		return Finding{r.Name, m, Skip, why}, nil
	}
	a, err := attemptOf(at, i, r, m)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.Fixtures.Remove(at.Host)) }()
	if err := a.Fixtures.Prepare(at.Host, at.User); err != nil {
		return f, fmt.Errorf("preparing %s: %w", a.Fixtures.Dir, err)
	}
	before, err := a.Fixtures.Describe(at.Host)
	if err != nil {
		return f, err
	}
	result, err := c.Call(policy.Profile{Mode: m}, r.Try.Tool, a.Arguments)
	if err != nil {
		return f, err
	}
	after, err := a.Fixtures.Describe(at.Host)
	if err != nil {
		return f, err
	}
	return a.Judge(result, before, after), nil
}

// Judge compares what came of the call, and of the world, with what was promised.
func (a Attempt) Judge(r Result, before, after State) Finding {
	f := Finding{Row: a.Row.Name, Mode: a.Mode, Verdict: Fail}
	w := a.Row.want(a.Mode)
	err := a.Row.Try.judge(w, r)
	switch changed := before.difference(after); {
	case err != nil:
		f.Why = err.Error()
	case w.Allowed && a.Row.Changes && changed == "":
		f.Why = "was said to be done, and nothing is different"
	case !w.Allowed && changed != "":
		f.Why = "was refused, and yet " + changed
	default:
		f.Verdict = Pass
	}
	return f
}
