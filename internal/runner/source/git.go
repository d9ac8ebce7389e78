// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Git is a repository and what of it is checked out.
type Git struct {
	URL    string
	Ref    string // a branch, a tag, a whole commit hash, or a full name; "" for what HEAD names
	KeyDir string // the mounted credentials; "" where there are none
	Key    string // the name of their Secret

	Timeout time.Duration // of each command
}

// The API admits no others; a flag must not become an option, nor a host a command.
var (
	urlForm    = regexp.MustCompile(`^https?://([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[A-Za-z0-9._~/%+,:=-]*)?$`)
	refForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+@-]*$`)
	commitForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// clone fetches all branches and tags, and checks one of them out.
func (g *Git) clone(ctx context.Context, workspace string) (record, error) {
	r, err := g.runner(workspace)
	if err != nil {
		return record{}, err
	}
	if err := g.reach(ctx); err != nil {
		return record{}, err
	}
	if _, err := r.git(ctx, "clone", "--quiet", "--no-checkout", "--no-local", "--template=", "--no-recurse-submodules", "--origin=origin", "--", g.URL, workspace); err != nil {
		return record{}, err
	}
	how, err := g.checkout(ctx, r)
	if err != nil {
		return record{}, err
	}
	if how == nil { // a repository without a commit
		return record{URL: g.URL, Ref: g.Ref}, nil
	}
	if _, err := r.git(ctx, append([]string{"checkout", "--quiet", "--force", "--no-recurse-submodules"}, how...)...); err != nil {
		return record{}, err
	}
	commit, err := r.git(ctx, "rev-parse", "--verify", "HEAD^{commit}")
	return record{URL: g.URL, Ref: g.Ref, Commit: commit}, err
}

// checkout says with which arguments the ref is checked out; nil where there is nothing to.
func (g *Git) checkout(ctx context.Context, r *runner) ([]string, error) {
	name, isTag := strings.CutPrefix(g.Ref, "refs/tags/")
	name, isBranch := strings.CutPrefix(name, "refs/heads/")
	has := func(ref string) bool {
		_, err := r.git(ctx, "rev-parse", "--verify", "--quiet", ref+"^{commit}")
		return err == nil
	}
	switch {
	case g.Ref == "" && !has("HEAD"):
		branches, err := r.git(ctx, "for-each-ref", "--count=1", "refs/remotes/origin")
		if err == nil && branches != "" {
			err = act("the HEAD of %s names no branch that exists: set workspace.source.git.ref", g.URL)
		}
		return nil, err
	case g.Ref == "":
		return []string{"HEAD", "--"}, nil // stays on the branch that the clone has named
	case !isTag && has("refs/remotes/origin/"+name):
		return []string{"-B", name, "--track", "origin/" + name, "--"}, nil
	case !isBranch && has("refs/tags/"+name):
		return []string{"--detach", "refs/tags/" + name, "--"}, nil
	case commitForm.MatchString(g.Ref) && has(g.Ref):
		return []string{"--detach", g.Ref, "--"}, nil
	case commitForm.MatchString(g.Ref), strings.HasPrefix(g.Ref, "refs/") && !isTag && !isBranch:
		// Not of a branch or tag: some servers give it to who asks for it.
		if _, err := r.git(ctx, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "origin", g.Ref); err == nil {
			return []string{"--detach", "FETCH_HEAD", "--"}, nil
		}
	}
	return nil, act("%s has no branch, tag or commit %s: create the session anew with a ref that it has", g.URL, g.Ref)
}

// origin is whom the credentials are for.
func (g *Git) origin() string {
	u, err := url.Parse(g.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// credentials reads what is to be shown to the server.
func credentials(dir, secret string) (user, password string, err error) {
	user, err = one(filepath.Join(dir, "username"))
	if os.IsNotExist(err) {
		user, err = "git", nil
	}
	if err != nil {
		return "", "", act("the key username of the Secret %s cannot be used: %v", secret, err)
	}
	password, err = one(filepath.Join(dir, "password"))
	if os.IsNotExist(err) {
		return "", "", act("the Secret %s does not exist in the session's namespace, or has no key password: create it", secret)
	}
	if err != nil {
		return "", "", act("the key password of the Secret %s cannot be used: %v", secret, err)
	}
	return user, password, nil
}

// one reads a file of one line.
func one(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if s == "" || len(s) > 4096 || strings.ContainsAny(s, "\r\n\x00") {
		return "", fmt.Errorf("it must be one line of 1 to 4096 bytes")
	}
	return s, nil
}
