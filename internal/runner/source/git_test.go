// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

func TestARefIsABranchATagOrACommit(t *testing.T) {
	s := serve(t, false, nil)
	bare := s.repository(t, map[string]string{"README": "one"})
	first := git(t, bare, "rev-parse", "main")
	topic := push(t, bare, "topic/x", "README", "topic")
	git(t, bare, "tag", "v1", first)
	git(t, bare, "tag", "--annotate", "--message=two", "v2", topic)
	hidden := push(t, bare, "gone", "README", "hidden")
	git(t, bare, "branch", "--delete", "--force", "gone")
	git(t, bare, "update-ref", "refs/pull/1/head", hidden)
	unknown := strings.Repeat("12345678", 5)
	for ref, want := range map[string]struct{ content, head string }{
		"":                    {"one", "refs/heads/main"},
		"main":                {"one", "refs/heads/main"},
		"topic/x":             {"topic", "refs/heads/topic/x"},
		"refs/heads/topic/x":  {"topic", "refs/heads/topic/x"},
		"v1":                  {"one", ""},
		"refs/tags/v2":        {"topic", ""},
		first:                 {"one", ""},
		hidden:                {"hidden", ""},
		"refs/pull/1/head":    {"hidden", ""},
		"refs/heads/v1":       {},
		"refs/tags/main":      {},
		"nonsense":            {},
		unknown:               {},
		"refs/pull/2/head":    {},
		"FETCH_HEAD":          {},
		"origin/main":         {},
		"refs/remotes/origin": {},
	} {
		t.Run(strings.ReplaceAll("ref "+ref, "/", "-"), func(t *testing.T) {
			v := newVolumes(t)
			if want.content == "" {
				v.refuses(wire.SourceFailed, "has no branch, tag or commit "+ref, "--git", s.URL+"/project.git", "--ref", ref)
				return
			}
			v.fetched("--git", s.URL+"/project.git", "--ref", ref)
			head, err := gitCommand(t, v.workspace, "symbolic-ref", "--quiet", "HEAD").Output()
			if got := v.file("README"); got != want.content || strings.TrimSpace(string(head)) != want.head {
				t.Errorf("README %q on %q (%v), want %q on %q", got, head, err, want.content, want.head)
			}
			if status := git(t, v.workspace, "status", "--porcelain"); status != "" {
				t.Errorf("git status says %q", status)
			}
			if want := git(t, v.workspace, "rev-parse", "HEAD"); !strings.Contains(everything(t, v.path("state")), want) {
				t.Errorf("the record does not name the commit %s", want)
			}
		})
	}
}

func TestARepositoryIsFetchedOnce(t *testing.T) {
	s := serve(t, false, nil)
	bare := s.repository(t, map[string]string{"README": "one"})
	v := newVolumes(t)
	v.fetched("--git", s.URL+"/project.git")
	push(t, bare, "main", "README", "two")
	if err := os.WriteFile(filepath.Join(v.workspace, "README"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := len(s.heard())
	v.fetched("--git", s.URL+"/project.git")
	if v.file("README") != "mine" || len(s.heard()) != n {
		t.Errorf("README %q after a restart, %d requests", v.file("README"), len(s.heard())-n)
	}
}

// A fetch is cut off in the middle, and whatever it has left is gone when it is tried again.
func TestAHalfFinishedFetchIsCleanedAndRepeated(t *testing.T) {
	var whole atomic.Bool
	s := serve(t, false, func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !whole.Load() && strings.HasSuffix(r.URL.Path, "git-upload-pack") {
				panic(http.ErrAbortHandler)
			}
			git.ServeHTTP(w, r)
		})
	})
	s.repository(t, map[string]string{"README": "one"})
	v := newVolumes(t)
	v.refuses(wire.SourceUnavailable, "the server does not answer as it should", "--git", s.URL+"/project.git")
	// As after SIGKILL: git had no time to tidy up.
	if err := errors.Join(os.MkdirAll(filepath.Join(v.workspace, ".git", "objects"), 0o755), os.WriteFile(filepath.Join(v.workspace, "junk"), nil, 0o644),
		os.Lchown(filepath.Join(v.workspace, ".git"), toolsUser, toolsUser)); err != nil {
		t.Fatal(err)
	}
	whole.Store(true)
	v.fetched("--git", s.URL+"/project.git")
	if _, err := os.Lstat(filepath.Join(v.workspace, "junk")); err == nil || v.file("README") != "one" {
		t.Error("what an unfinished fetch had left is still there")
	}
}

// Nothing that stands in a repository runs, and nothing that it names is fetched.
func TestAHostileRepositoryIsOnlyData(t *testing.T) {
	s := serve(t, false, nil)
	proof := filepath.Join(t.TempDir(), "ran")
	script := "#!/bin/sh\ntouch " + proof + "\n"
	work := t.TempDir()
	bare := s.repository(t, map[string]string{
		"README":                  "one",
		".gitattributes":          "*.txt filter=evil diff=evil merge=evil\n*.big filter=lfs\n",
		"a.txt":                   "plain",
		"b.big":                   "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
		".gitconfig":              "[filter \"evil\"]\nsmudge = touch " + proof + "\n[core]\nfsmonitor = touch " + proof + "\n",
		".husky/post-checkout":    script,
		".githooks/post-checkout": script,
		"hooks/post-checkout":     script,
	})
	git(t, work, "clone", "--quiet", bare, ".")
	err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(work, "passwd")), os.Symlink("../../..", filepath.Join(work, "out")),
		os.WriteFile(filepath.Join(work, ".gitmodules"), fmt.Appendf(nil, "[submodule \"sub\"]\npath = sub\nurl = %s/sub.git\n", s.URL), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", "--all")
	git(t, work, "update-index", "--add", "--cacheinfo", "160000,"+git(t, work, "rev-parse", "HEAD")+",sub")
	git(t, work, "commit", "--quiet", "--message=links")
	git(t, work, "push", "--quiet", "origin", "HEAD:main")

	v := newVolumes(t)
	v.env = []string{"HOME=" + v.workspace, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=touch " + proof}
	v.fetched("--git", s.URL+"/project.git")
	if _, err := os.Lstat(proof); err == nil {
		t.Error("something of the repository ran")
	}
	for _, r := range s.heard() {
		if strings.Contains(r.URL.Path, "sub.git") {
			t.Error("a submodule was fetched")
		}
	}

	for name, want := range map[string]string{"passwd": "/etc/passwd", "out": "../../.."} {
		if link, err := os.Readlink(filepath.Join(v.workspace, name)); link != want {
			t.Errorf("the link %s leads to %q (%v)", name, link, err)
		}
	}
	if inside, err := os.ReadDir(filepath.Join(v.workspace, "sub")); err != nil || len(inside) != 0 {
		t.Errorf("the submodule's directory holds %v (%v)", inside, err)
	}
	if v.file("a.txt") != "plain" || !strings.HasPrefix(v.file("b.big"), "version https://git-lfs") {
		t.Error("a filter was applied")
	}
	if hooks, err := os.ReadDir(filepath.Join(v.workspace, ".git", "hooks")); len(hooks) > 0 {
		t.Errorf("the clone has hooks: %v (%v)", hooks, err)
	}
	for key, value := range map[string]string{"core.hookspath": "", "filter.lfs.smudge": "", "credential.helper": "", "include.path": ""} {
		if got, _ := exec.CommandContext(t.Context(), "git", "config", "--file", filepath.Join(v.workspace, ".git", "config"), key).Output(); string(got) != value {
			t.Errorf("the clone's configuration has %s = %s", key, got)
		}
	}
}

// A submodule whose update is a command is refused with all the rest.
func TestASubmoduleThatIsACommandIsRefused(t *testing.T) {
	s := serve(t, false, nil)
	proof := filepath.Join(t.TempDir(), "ran")
	s.repository(t, map[string]string{".gitmodules": "[submodule \"sub\"]\npath = sub\nurl = " + s.URL + "/sub.git\nupdate = !touch " + proof + "\n"})
	v := newVolumes(t)
	v.refuses(wire.SourceFailed, "the repository holds objects that git refuses", "--git", s.URL+"/project.git")
	if _, err := os.Lstat(proof); err == nil {
		t.Error("the command ran")
	}
}

// A tree that would put a file into .git, or above the workspace, is refused.
func TestATreeThatLeavesItsPlaceIsRefused(t *testing.T) {
	for _, name := range []string{".git", "..", ".GIT"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, false, nil)
			bare := s.repository(t, map[string]string{"README": "one"})
			blob := git(t, bare, "rev-parse", "main:README")
			inner := tree(t, bare, "100755 blob "+blob+"\tconfig\n")
			outer := tree(t, bare, "040000 tree "+inner+"\t"+name+"\n")
			git(t, bare, "update-ref", "refs/heads/main", git(t, bare, "commit-tree", "-m", "evil", outer))
			v := newVolumes(t)
			v.refuses(wire.SourceFailed, "the repository holds objects that git refuses", "--git", s.URL+"/project.git")
			if entries, err := os.ReadDir(v.workspace); len(entries) != 0 {
				t.Errorf("the workspace holds %v (%v)", entries, err)
			}
		})
	}
}

func tree(t *testing.T, repository, line string) string {
	t.Helper()
	cmd := gitCommand(t, repository, "mktree")
	cmd.Stdin = strings.NewReader(line)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git mktree: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestWhatCannotBeFetchedSaysWhy(t *testing.T) {
	s := serve(t, false, nil)
	s.repository(t, map[string]string{"README": "one"})
	broken := serve(t, false, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	forbidden := serve(t, false, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	})
	secure := serve(t, true, nil)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		url, ref string
		status   int
		words    string
	}{
		"there is no such repository":   {s.URL + "/other.git", "", wire.SourceFailed, "there is no such repository"},
		"nobody listens":                {"http://" + nobody + "/project.git", "", wire.SourceUnavailable, nobody + " is not reached: connection refused"},
		"there is no such host":         {"https://no-such-host.invalid/project.git", "", wire.SourceUnavailable, "no-such-host.invalid:443 is not reached"},
		"the server is broken":          {broken.URL + "/project.git", "", wire.SourceUnavailable, "502"},
		"the server forbids it":         {forbidden.URL + "/project.git", "", wire.SourceFailed, "the server refuses"},
		"an authority that nobody has":  {secure.URL + "/project.git", "", wire.SourceFailed, "certificate cannot be verified"},
		"another protocol":              {"file:///etc", "", wire.SourceFailed, "is not the https:// or http:// URL"},
		"a transport that is a command": {"ext::sh -c touch", "", wire.SourceFailed, "is not the https:// or http:// URL"},
		"a URL that is an option":       {"--upload-pack=touch", "", wire.SourceFailed, "is not the https:// or http:// URL"},
		"a host that is a command":      {"https://$(touch x)/project.git", "", wire.SourceFailed, "is not the https:// or http:// URL"},
		"a ref that is an option":       {s.URL + "/project.git", "--orphan", wire.SourceFailed, "is no name of a branch"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolumes(t)
			v.refuses(tc.status, tc.words, "--git="+tc.url, "--ref="+tc.ref)
			before := v.path("before")
			if err := os.Rename(v.path("termination-log"), before); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(v.path("termination-log"), nil, 0o600), os.Chmod(v.path("termination-log"), 0o666)); err != nil {
				t.Fatal(err)
			}
			_, again := v.fetch("--git="+tc.url, "--ref="+tc.ref)
			if first, _ := os.ReadFile(before); string(first) != again {
				t.Errorf("the same cause is told in other words:\n%s\n%s", first, again)
			}
		})
	}
}

// A volume that is full is told apart from a server that fails.
func TestAVolumeThatIsTooSmallSaysSo(t *testing.T) {
	s := serve(t, false, nil)
	noise := make([]byte, 2<<20)
	random, err := os.Open("/dev/urandom")
	if err == nil {
		_, err = random.Read(noise)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.repository(t, map[string]string{"noise": string(noise)})
	v := newVolumes(t)
	if err := unix.Mount("small", v.workspace, "tmpfs", 0, "size=1m,mode=777"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(v.workspace, unix.MNT_DETACH) })
	v.refuses(wire.SourceFailed, "the volume is too small", "--git", s.URL+"/project.git")
}
