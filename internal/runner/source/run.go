// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the variables that an image may set for its network: certificate
// authorities and proxies.
var inherited = []string{"GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "HTTPS_PROXY", "https_proxy", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"}

// settings hold for every command and are written nowhere. Faults of form that old tools
// left in many histories are let pass; what a check of objects finds else is refused.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null",
	"submodule.recurse=false", "fetch.recurseSubmodules=false", "transfer.bundleURI=false",
	"transfer.fsckObjects=true", "fetch.fsck.zeroPaddedFilemode=ignore", "fetch.fsck.badTimezone=ignore", "fetch.fsck.missingSpaceBeforeDate=ignore",
	"http.sslVerify=true", "http.followRedirects=initial", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60",
	"credential.helper=", "core.askPass=", "gc.auto=0", "maintenance.auto=false", "advice.detachedHead=false",
}

// runner starts git.
type runner struct {
	program string
	dir     string
	config  []string
	env     []string
	timeout time.Duration
}

func (g *Git) runner(workspace string) (*runner, error) {
	if !urlForm.MatchString(g.URL) {
		return nil, act("%.200q is not the https:// or http:// URL of a repository", g.URL)
	}
	if g.Ref != "" && !refForm.MatchString(g.Ref) {
		return nil, act("%.200q is no name of a branch, tag or commit", g.Ref)
	}
	program, err := lookUp("git")
	if err != nil {
		return nil, act("%v: the tools image must have git where a workspace.source is of type Git", err)
	}
	scheme, _, _ := strings.Cut(g.URL, "://")
	r := &runner{program: program, dir: workspace, config: append(slices.Clone(settings), "safe.directory="+workspace), timeout: cmp.Or(g.Timeout, 30*time.Minute)}
	r.env = []string{
		"PATH=" + searchPath, "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=" + scheme,
	}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			r.env = append(r.env, name+"="+value)
		}
	}
	if g.KeyDir == "" {
		return r, nil
	}
	if scheme != "https" {
		return nil, act("credentials are sent over https alone, and %s is not", g.URL)
	}
	if _, _, err := credentials(g.KeyDir, g.Key); err != nil {
		return nil, err
	}
	helper, err := os.Executable()
	if err != nil || !regexp.MustCompile(`^[A-Za-z0-9/._-]+$`).MatchString(helper) { // a shell reads it
		return nil, fmt.Errorf("the path of this program, %q, cannot be given to git: %w", helper, err)
	}
	r.config = append(r.config, "credential.helper="+helper+" credential", "credential.useHttpPath=false")
	r.env = append(r.env, envOrigin+"="+g.origin(), envKeyDir+"="+g.KeyDir)
	return r, nil
}

// git runs one command in the workspace and returns what it printed, without the last
// line's end.
func (r *runner) git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var argv []string
	for _, c := range r.config {
		argv = append(argv, "-c", c)
	}
	cmd := exec.CommandContext(ctx, r.program, append(argv, args...)...)
	var out bytes.Buffer
	var errs tail
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.env, &out, &errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return strings.TrimRight(out.String(), "\n"), nil
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return "", later("git %s did not end within %s", args[0], r.timeout)
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", judge(args[0], errs.text(), err)
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

const tailBytes = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b); n > tailBytes {
		t.b = append(t.b[:0], t.b[n-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(string(t.b), "?") }

func lookUp(name string) (string, error) {
	for dir := range strings.SplitSeq(searchPath, ":") {
		if path := dir + "/" + name; unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in the image's %s", name, searchPath)
}
