// SPDX-License-Identifier: Apache-2.0

// Package build makes the cluster's programs from the sources that go.mod pins,
// into a directory that is named by everything they are made from. It knows how
// they are linked and nothing of how they are called.
package build

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

const (
	module = "github.com/agentsession-dev/operator/hack/kube"
	tags   = "no_btrfs,no_zfs,no_devmapper" // snapshotters that need C or foreign disks
)

// Program is one binary to build.
type Program struct {
	Name    string
	Of      string   // module whose version it has; "" for our own
	Aliases []string // other names of it, by which it tells what to be
}

// Programs, the quick ones first.
var Programs = []Program{
	{Name: "pause"},
	{Name: "etcd", Of: "go.etcd.io/etcd/server/v3"},
	{Name: "containerd-shim-runc-v2", Of: "github.com/containerd/containerd/v2"},
	{Name: "containerd", Of: "github.com/containerd/containerd/v2"},
	{Name: "nodeimage"},
	{Name: "coredns", Of: "github.com/coredns/coredns"},
	{Name: "kubectl", Of: "k8s.io/kubernetes"},
	{Name: "kube", Of: "k8s.io/kubernetes", Aliases: []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	}},
}

// Plan is a build whose result has a place.
type Plan struct {
	Source string // directory of the module
	Root   string // directory of this build in the cache
	mod    string // content of go.mod
}

// BinDir is where the programs are, or will be.
func (p Plan) BinDir() string { return filepath.Join(p.Root, "bin") }

// NewPlan computes the place of the build from the content of the sources.
func NewPlan(source, cache string) (Plan, error) {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Source: source, mod: string(mod)}
	digest, err := p.digest()
	if err != nil {
		return Plan{}, fmt.Errorf("reading the sources of the cluster's programs: %w", err)
	}
	p.Root = filepath.Join(cache, p.version("k8s.io/kubernetes")+"-"+digest)
	return p, nil
}

// digest covers what the programs depend on. The tool itself is not among it:
// changing it rebuilds nothing.
func (p Plan) digest() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, tags, p.linkerFlags())
	for _, name := range []string{"go.mod", "go.sum", "cmd"} {
		err := filepath.WalkDir(filepath.Join(p.Source, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n%s", d.Name(), len(content), content)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:12], nil
}

// version is what go.mod requires of a module.
func (p Plan) version(mod string) string {
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(mod) + ` (v\S+)`).FindStringSubmatch(p.mod)
	if m == nil {
		return ""
	}
	return m[1]
}

func (p Plan) linkerFlags() string {
	const variables = "k8s.io/component-base/version."
	v := p.version("k8s.io/kubernetes")
	numbers := append(strings.Split(strings.TrimPrefix(v, "v"), "."), "", "")
	return fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", variables, v, numbers[0], numbers[1])
}

// missing are the programs that are not in the cache.
func (p Plan) missing() []Program {
	var missing []Program
	for _, prog := range Programs {
		for _, name := range append([]string{prog.Name}, prog.Aliases...) {
			if _, err := os.Stat(filepath.Join(p.BinDir(), name)); err != nil {
				missing = append(missing, prog)
				break
			}
		}
	}
	return missing
}

// DefaultCache is where builds are kept for this user.
func DefaultCache() (string, error) {
	if dir := os.Getenv("AGENTSESSION_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("AGENTSESSION_CACHE=%q: must be an absolute path", dir)
		}
		return filepath.Join(dir, "kube"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to keep the built programs: %w: name a directory with --cache or AGENTSESSION_CACHE", err)
	}
	return filepath.Join(dir, "agentsession", "kube"), nil
}

// FindSource finds the module from the working directory, or where this program
// was compiled.
func FindSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	var candidates []string
	for ; ; dir = filepath.Dir(dir) {
		candidates = append(candidates, dir, filepath.Join(dir, "hack", "kube"))
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		candidates = append(candidates, filepath.Join(filepath.Dir(file), "..", ".."))
	}
	for _, c := range candidates {
		mod, err := os.ReadFile(filepath.Join(c, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+module+"\n") {
			return filepath.Clean(c), nil
		}
	}
	return "", errors.New("the sources of hack/kube are not here: run this in the project's checkout, or name the directory with --source")
}
