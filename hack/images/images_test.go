// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	stdlog "log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// project is a checkout with one program.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, content := range map[string]string{
		"go.mod":                   "module " + module + "\n\ngo 1.26.0\n",
		"cmd/replay-model/main.go": "package main\n\nfunc main() { println(\"replaying\") }\n",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A program is compiled, becomes an image, is not written again while nothing changed, and reaches a registry whole.
func TestAnImageIsBuiltOnceAndPushed(t *testing.T) {
	root, out := project(t), filepath.Join(t.TempDir(), "dist")
	build := func(tag string) string {
		t.Helper()
		var log bytes.Buffer
		if err := run(t.Context(), []string{"build", "--root", root, "--out", out, "--tag", tag, "--only", "replay-model"}, &log); err != nil {
			t.Fatalf("build: %v\n%s", err, log.String())
		}
		return log.String()
	}
	for _, step := range []struct{ tag, want string }{
		{"v1", "written to"}, {"v1", "is unchanged"}, {"v2", "written to"},
	} {
		if log := build(step.tag); !strings.Contains(log, step.want) {
			t.Errorf("building %s said %q, want %q", step.tag, log, step.want)
		}
	}

	server := httptest.NewServer(registry.New(registry.Logger(stdlog.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	if err := run(t.Context(), []string{"push", "--dir", out, "--repo", host + "/team", "--insecure"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(host + "/team/replay-model:v2")
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/local/bin/replay-model"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("65532:65532", config.Config.User); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"etc", "etc/group", "etc/passwd", "usr", "usr/local", "usr/local/bin", "usr/local/bin/replay-model"}, pathsOf(t, mutate.Extract(img))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func pathsOf(t *testing.T, content io.ReadCloser) []string {
	t.Helper()
	defer content.Close()
	found := map[string]bool{}
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(h.Name, "/")] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func TestTheTarballCarriesItsName(t *testing.T) {
	out := t.TempDir()
	args := []string{"build", "--root", project(t), "--out", out, "--tag", "v1", "--repo", "example.com/x", "--only", "replay-model"}
	if err := run(t.Context(), args, io.Discard); err != nil {
		t.Fatal(err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(filepath.Join(out, "replay-model.tar")) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/x/replay-model:v1"}, manifest[0].RepoTags); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// Each mistake of a person is answered with what to do.
func TestMistakesAreNamed(t *testing.T) {
	root := project(t)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no command":             {nil, "build or push"},
		"an unknown command":     {[]string{"bake"}, "build or push"},
		"no output directory":    {[]string{"build", "--tag", "v1"}, "--out DIR"},
		"no tag":                 {[]string{"build", "--out", "x"}, "--tag TAG"},
		"the tag latest":         {[]string{"build", "--out", "x", "--tag", "latest"}, "take a version"},
		"a tag that is none":     {[]string{"build", "--out", "x", "--tag", "a b"}, "--tag"},
		"an unknown image":       {[]string{"build", "--out", "x", "--tag", "v1", "--only", "tool"}, "manager, agent, replay-model, tools"},
		"a program without code": {[]string{"build", "--root", root, "--out", "x", "--tag", "v1", "--only", "agent"}, "cmd/toolbox"},
		"outside the repository": {[]string{"build", "--root", "", "--out", "x", "--tag", "v1"}, "--root"},
		"a stray argument":       {[]string{"build", "--out", "x", "--tag", "v1", "agent"}, `"agent"`},
		"push to nowhere":        {[]string{"push", "--dir", "x"}, "--repo HOST/PATH"},
		"push of nothing":        {[]string{"push", "--dir", root, "--repo", "127.0.0.1:1/x"}, "build --out"},
		"push of one not built":  {[]string{"push", "--dir", root, "--repo", "127.0.0.1:1/x", "--only", "tools"}, "tarball of tools"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := run(t.Context(), tc.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run(%q) = %v, want an error with %q", tc.args, err, tc.want)
			}
			if left, _ := os.ReadDir("."); len(left) != 0 {
				t.Errorf("run(%q) left %v behind", tc.args, left)
			}
		})
	}
}

// Who builds with Docker gets the same tools: the Dockerfile installs the same packages and has every image as a target.
func TestTheDockerfileAgrees(t *testing.T) {
	content, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(content), "--no-install-recommends")
	list, _, _ := strings.Cut(after, "&&")
	got := strings.Fields(strings.ReplaceAll(list, "\\", " "))
	if diff := cmp.Diff(tools, got); diff != "" {
		t.Errorf("packages of the Dockerfile (-catalogue +Dockerfile):\n%s", diff)
	}
	for _, i := range catalogue {
		if !strings.Contains(string(content), " AS "+i.name+"\n") {
			t.Errorf("the Dockerfile has no target %s", i.name)
		}
	}
}
