// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Run tries every row in the modes. The error is of the suite itself.
func Run(c Caller, at Place, modes ...policy.Mode) ([]Finding, error) {
	var findings []Finding
	for i, r := range Rows() {
		for _, m := range modes {
			f := Finding{Row: r.Name, Mode: m, Verdict: Pass}
			if f.Verdict, f.Why = skipped(r, m, at); f.Verdict == "" {
				dir := path.Join(at.Workspace, fmt.Sprintf("conformance-%d-%d", i, m))
				err := try(c, at, r, m, dir)
				if errors.Is(err, errSuite) {
					return findings, fmt.Errorf("%s in %s: %w", r.Name, m, err)
				}
				f.Verdict = Pass
				if err != nil {
					f.Verdict, f.Why = Fail, err.Error()
				}
			}
			if f.Why != "not promised" {
				findings = append(findings, f)
			}
		}
	}
	return findings, nil
}

func skipped(r Row, m policy.Mode, at Place) (Verdict, string) {
	switch {
	case r.want(m).skip:
		return Skip, "not promised"
	case r.Outside && at.Outside == "":
		return Skip, "there is no writable directory outside the workspace"
	case r.Layer == OfScopes && at.NoScopes:
		return Skip, "the kernel has no signal scopes (Landlock ABI 6)"
	}
	return "", ""
}

// errSuite marks trouble of the suite, as opposed to a promise that is broken.
var errSuite = errors.New("the suite cannot work")

func try(c Caller, at Place, r Row, m policy.Mode, dir string) (err error) {
	outside := ""
	if at.Outside != "" {
		outside = path.Join(at.Outside, path.Base(dir))
	}
	places := []string{at.Host(dir)}
	if outside != "" {
		places = append(places, at.Host(outside))
	}
	defer func() {
		for _, p := range places {
			err = errors.Join(err, os.RemoveAll(p))
		}
	}()
	for _, p := range places {
		if err := prepare(p, at.User); err != nil {
			return fmt.Errorf("%w: preparing %s: %w", errSuite, p, err)
		}
	}
	// A link that leads out, as the calls see it.
	if outside != "" {
		if err := os.Symlink(outside, path.Join(at.Host(dir), "out")); err != nil {
			return fmt.Errorf("%w: %w", errSuite, err)
		}
	}
	args, err := r.Try.arguments(strings.NewReplacer("{dir}", dir, "{outside}", outside, "{toolbox}", at.Toolbox))
	if err != nil {
		return fmt.Errorf("%w: %w", errSuite, err)
	}
	before, err := snapshot(places...)
	if err != nil {
		return fmt.Errorf("%w: %w", errSuite, err)
	}
	result, err := c.Call(policy.Profile{Mode: m}, r.Try.Tool, args)
	if err != nil {
		return fmt.Errorf("%w: %w", errSuite, err)
	}
	after, err := snapshot(places...)
	if err != nil {
		return fmt.Errorf("%w: %w", errSuite, err)
	}
	w := r.want(m)
	if err := r.Try.judge(w, result); err != nil {
		return err
	}
	switch changed := before.difference(after); {
	case w.Allowed && r.Changes && changed == "":
		return errors.New("was said to be done, and nothing is different")
	case !w.Allowed && changed != "":
		return fmt.Errorf("was refused, and yet %s", changed)
	}
	return nil
}
