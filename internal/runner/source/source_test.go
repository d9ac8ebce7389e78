// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// toolsUser is whom the fetch runs as.
const toolsUser = 65533

// toolbox is the real program: what git calls back is it, too.
var toolbox string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "toolbox")
	if err == nil {
		defer os.RemoveAll(dir)
		toolbox = filepath.Join(dir, "toolbox")
		var out []byte
		out, err = exec.Command("go", "build", "-o", toolbox, "../../../cmd/toolbox").CombinedOutput()
		err = errors.Join(err, os.Chmod(dir, 0o755))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s", out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the toolbox:", err)
		return 1
	}
	return m.Run()
}

// volumes are the directories of one session's fetch.
type volumes struct {
	t         *testing.T
	dir       string
	workspace string
	env       []string
}

func newVolumes(t *testing.T) *volumes {
	t.Helper()
	dir, err := os.MkdirTemp("", "fetch") //nolint:usetesting // other users go there; into t.TempDir only its owner may
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	v := &volumes{t: t, dir: dir, workspace: filepath.Join(dir, "workspace")}
	// As the kubelet makes them: root's, and writable for the tools' group.
	for _, d := range []string{"workspace", "state", "files", "keys"} {
		p := filepath.Join(dir, d)
		err = errors.Join(err, os.Mkdir(p, 0o750), os.Chown(p, 0, toolsUser), os.Chmod(p, 0o2770))
	}
	log := filepath.Join(dir, "termination-log")
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(log, nil, 0o600), os.Chmod(log, 0o666)); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *volumes) path(elem ...string) string {
	return filepath.Join(append([]string{v.dir}, elem...)...)
}

// fetch runs the toolbox as the pod does, and returns its exit status and its last words.
func (v *volumes) fetch(args ...string) (status int, message string) {
	v.t.Helper()
	all := append([]string{"fetch", "--workspace", v.workspace, "--state-dir", v.path("state"), "--credentials-dir", v.path("keys"),
		"--config-map-dir", v.path("files"), "--termination-log", v.path("termination-log")}, args...)
	cmd := exec.CommandContext(v.t.Context(), toolbox, all...)
	cmd.Env, cmd.Dir = v.env, "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: toolsUser, Gid: toolsUser}}
	out, err := cmd.CombinedOutput()
	v.t.Logf("toolbox fetch %q: %v\n%s", args, err, out)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		v.t.Fatal(err)
	}
	b, err := os.ReadFile(v.path("termination-log"))
	if err != nil {
		v.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

func (v *volumes) fetched(args ...string) {
	v.t.Helper()
	if status, message := v.fetch(args...); status != 0 {
		v.t.Fatalf("the fetch ended with %d: %s", status, message)
	}
}

// refuses wants a fetch to fail with a status and words.
func (v *volumes) refuses(status int, words string, args ...string) {
	v.t.Helper()
	if got, message := v.fetch(args...); got != status || !strings.Contains(message, words) {
		v.t.Errorf("the fetch ended with %d and %q, want %d and %q", got, message, status, words)
	}
	if _, err := os.Lstat(v.path("state", "fetched")); err == nil {
		v.t.Error("a fetch that failed counts as done")
	}
}

func (v *volumes) file(elem ...string) string {
	v.t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{v.workspace}, elem...)...))
	if err != nil {
		v.t.Fatal(err)
	}
	return string(b)
}

// git runs git on the workspace as its owner would, or in a repository that is served.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := gitCommand(t, dir, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func gitCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	return cmd
}

// server serves bare repositories with git's own server program.
type server struct {
	*httptest.Server
	dir string

	mu       sync.Mutex
	requests []*http.Request
}

// serve starts a server; wrap may stand before git.
func serve(t *testing.T, secure bool, wrap func(http.Handler) http.Handler) *server {
	t.Helper()
	backend := strings.TrimSpace(git(t, "/", "--exec-path")) + "/git-http-backend"
	s := &server{dir: t.TempDir()}
	var h http.Handler = &cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=true",
	}}
	if wrap != nil {
		h = wrap(h)
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Clone(t.Context()))
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	})
	s.Server = httptest.NewUnstartedServer(counted)
	if secure {
		s.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// trust makes the fetch accept the server's certificate, as an image would.
func (v *volumes) trust(s *server) {
	v.t.Helper()
	file := v.path("ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		v.t.Fatal(err)
	}
	v.env = append(v.env, "GIT_SSL_CAINFO="+file)
}

func (s *server) heard() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// repository makes a repository of files, on branch main, and serves it as project.git.
func (s *server) repository(t *testing.T, files map[string]string) (bare string) {
	t.Helper()
	work := t.TempDir()
	git(t, work, "init", "--quiet", "--initial-branch=main")
	for name, content := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(work, name)), 0o755), os.WriteFile(filepath.Join(work, name), []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, work, "add", "--all", "--force")
	git(t, work, "commit", "--quiet", "--message=one")
	bare = filepath.Join(s.dir, "project.git")
	git(t, s.dir, "clone", "--quiet", "--bare", work, bare)
	return bare
}

// push adds a file to a branch of a served repository, and returns the commit.
func push(t *testing.T, bare, branch, file, content string) string {
	t.Helper()
	work := t.TempDir()
	git(t, work, "clone", "--quiet", bare, ".")
	git(t, work, "checkout", "--quiet", "-B", branch)
	if err := os.WriteFile(filepath.Join(work, file), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", "--all")
	git(t, work, "commit", "--quiet", "--message="+branch)
	git(t, work, "push", "--quiet", "origin", branch)
	return git(t, work, "rev-parse", "HEAD")
}

// everything returns the paths and the contents of all that is below a directory.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path)
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestAConfigMapBecomesPlainFilesOnce(t *testing.T) {
	v := newVolumes(t)
	// As the kubelet mounts it: links into a directory that it replaces.
	data := v.path("files", "..2026_01_01")
	binary := "\x00\xff\x00"
	err := errors.Join(os.Mkdir(data, 0o755), os.WriteFile(filepath.Join(data, "a.txt"), []byte("hello"), 0o644),
		os.WriteFile(filepath.Join(data, "b.bin"), []byte(binary), 0o644), os.Symlink("..2026_01_01", v.path("files", "..data")),
		os.Symlink("..data/a.txt", v.path("files", "a.txt")), os.Symlink("..data/b.bin", v.path("files", "b.bin")))
	if err != nil {
		t.Fatal(err)
	}
	v.fetched("--config-map", "inputs")
	entries, err := os.ReadDir(v.workspace)
	if err != nil || len(entries) != 2 {
		t.Fatalf("the workspace has %v (%v), want two files", entries, err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			t.Errorf("%s is %s, want a plain file", e.Name(), e.Type())
		}
	}
	if v.file("a.txt") != "hello" || v.file("b.bin") != binary {
		t.Errorf("a.txt %q, b.bin %q", v.file("a.txt"), v.file("b.bin"))
	}
	// What a tool has made of it is not touched by another start.
	if err := errors.Join(os.WriteFile(filepath.Join(v.workspace, "a.txt"), []byte("mine"), 0o644), os.Remove(filepath.Join(v.workspace, "b.bin"))); err != nil {
		t.Fatal(err)
	}
	v.fetched("--config-map", "inputs")
	if _, err := os.Lstat(filepath.Join(v.workspace, "b.bin")); v.file("a.txt") != "mine" || err == nil {
		t.Error("a second start fetched again")
	}
}

func TestAConfigMapThatIsMissingSaysSo(t *testing.T) {
	v := newVolumes(t)
	v.refuses(wire.SourceFailed, "the ConfigMap inputs does not exist in the session's namespace, or has no keys: create it", "--config-map", "inputs")
	// It appears: the kubelet starts the container again.
	if err := os.WriteFile(v.path("files", "a.txt"), []byte("now"), 0o644); err != nil {
		t.Fatal(err)
	}
	v.fetched("--config-map", "inputs")
	if v.file("a.txt") != "now" {
		t.Error("the file is not there")
	}
}

func TestFilesThatNobodyFetchedAreLeftAlone(t *testing.T) {
	v := newVolumes(t)
	if err := errors.Join(os.WriteFile(filepath.Join(v.workspace, "precious"), []byte("x"), 0o600), os.WriteFile(v.path("files", "a.txt"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	v.refuses(wire.SourceFailed, `"precious"`, "--config-map", "inputs")
	if v.file("precious") != "x" {
		t.Error("a file was touched")
	}
}
