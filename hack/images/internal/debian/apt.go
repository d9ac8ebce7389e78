// SPDX-License-Identifier: Apache-2.0

// Package debian makes file trees of Debian packages with the machine's own apt: its release, its sources, its keys.
//
// It resolves as if nothing were installed, so the result depends on the package lists and not on this machine, and it
// changes nothing outside its cache directory: it needs no root, installs nothing and runs no maintainer script. What such a
// script would have done and a tool needs is done in rootfs.go.
package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoApt is returned on a machine without Debian's package tools.
var ErrNoApt = errors.New("apt-get and dpkg-deb are needed to take files from Debian packages and were not found on this machine; " +
	"build the image with Docker instead: docker build --target NAME -t REF . (in the repository's root)")

// Deb is one package file that apt chose.
type Deb struct {
	File     string // as apt names it: name_version_arch.deb, with an escaped epoch
	Checksum string // as apt's lists have it
}

// spec is how apt-get is told to fetch exactly this one.
func (d Deb) spec() (string, error) {
	name, rest, ok := strings.Cut(d.File, "_")
	version, _, ok2 := strings.Cut(rest, "_")
	version, err := url.PathUnescape(version)
	if !ok || !ok2 || err != nil {
		return "", fmt.Errorf("unexpected package file name %q", d.File)
	}
	return name + "=" + version, nil
}

// Apt resolves and fetches packages.
type Apt struct {
	dir     string
	log     io.Writer
	ownList bool // use the lists in dir rather than the machine's
	updated bool // these were fetched by this very run
}

// NewApt keeps its state in dir and tells on log what takes time.
func NewApt(dir string, log io.Writer) (*Apt, error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, ErrNoApt
		}
	}
	for _, sub := range []string{"cache/archives/partial", "lists/partial", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("making the package cache: %w", err)
		}
	}
	// An empty dpkg database: nothing counts as installed, so every dependency is named. It is made once, because a younger
	// one would make apt build its own cache again, which takes a second.
	status, err := os.OpenFile(filepath.Join(dir, "status"), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("making the package cache: %w", err)
	}
	_ = status.Close()
	return &Apt{dir: dir, log: log}, nil
}

// Query is what is wanted of Debian.
type Query struct {
	Packages     []string
	Dependencies bool // also everything that they depend on; recommendations never
}

func (q Query) args() []string {
	if q.Dependencies {
		return append([]string{"install", "--no-install-recommends"}, q.Packages...)
	}
	return append([]string{"download"}, q.Packages...)
}

// Resolve names the package files that answer the query. It asks with the machine's package lists and, where these are
// missing (a fresh machine, a slim container), with lists of its own, fetched at the first need.
func (a *Apt) Resolve(ctx context.Context, q Query) ([]Deb, error) {
	debs, err := a.printURIs(ctx, q.args())
	if err != nil && !a.ownList && ctx.Err() == nil {
		a.ownList = true
		debs, err = a.printURIs(ctx, q.args())
	}
	if err != nil && !a.updated && ctx.Err() == nil {
		if err := a.update(ctx); err != nil {
			return nil, err
		}
		debs, err = a.printURIs(ctx, q.args())
	}
	return debs, err
}

func (a *Apt) printURIs(ctx context.Context, args []string) ([]Deb, error) {
	// In an empty directory: apt leaves out what it has already.
	out, err := a.run(ctx, filepath.Join(a.dir, "empty"), append([]string{"-qq", "-y", "--print-uris"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("resolving Debian packages: %w", err)
	}
	return parseURIs(out)
}

// parseURIs reads lines of the form 'URI' FILE SIZE CHECKSUM, and ignores everything else.
func parseURIs(out []byte) ([]Deb, error) {
	var debs []Deb
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "'") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("resolving Debian packages: unexpected answer of apt-get: %q", line)
		}
		debs = append(debs, Deb{File: fields[1], Checksum: strings.Join(fields[3:], " ")})
	}
	if len(debs) == 0 {
		return nil, errors.New("resolving Debian packages: apt-get named none")
	}
	slices.SortFunc(debs, func(x, y Deb) int { return strings.Compare(x.File, y.File) })
	return debs, nil
}

// Fetch downloads the package files into dir, verified by apt. The machine's lists may be so old that the archive no
// longer has what they name; then it resolves anew with fresh lists, and returns what it fetched instead.
func (a *Apt) Fetch(ctx context.Context, q Query, debs []Deb, dir string) ([]Deb, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the package cache: %w", err)
	}
	err := a.download(ctx, dir, debs)
	if err != nil && !a.updated && ctx.Err() == nil {
		if err := a.update(ctx); err != nil {
			return nil, err
		}
		if debs, err = a.Resolve(ctx, q); err != nil {
			return nil, err
		}
		err = a.download(ctx, dir, debs)
	}
	if err != nil {
		return nil, fmt.Errorf("downloading Debian packages: %w", err)
	}
	return debs, prune(dir, debs)
}

func (a *Apt) download(ctx context.Context, dir string, debs []Deb) error {
	args := []string{"-qq", "download"}
	for _, d := range debs {
		spec, err := d.spec()
		if err != nil {
			return err
		}
		args = append(args, spec)
	}
	_, err := a.run(ctx, dir, args...)
	return err
}

// update fetches package lists into the cache. An error of one source is no error here: whether the needed packages
// are named is what counts, and the next resolve tells.
func (a *Apt) update(ctx context.Context) error {
	fmt.Fprintln(a.log, "images: fetching Debian's package lists")
	a.ownList, a.updated = true, true
	if _, err := a.run(ctx, a.dir, "-qq", "update"); err != nil {
		fmt.Fprintln(a.log, "images: apt-get update:", err)
	}
	return ctx.Err()
}

func (a *Apt) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	options := []string{
		"-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::State::extended_states=" + filepath.Join(a.dir, "extended_states"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "Dir::Cache::archives=archives/",
		"-o", "Dir::Cache::pkgcache=pkgcache.bin",
		"-o", "Dir::Cache::srcpkgcache=srcpkgcache.bin",
		"-o", "Debug::NoLocking=1",
		// The cache belongs to the user who builds; apt's download user could not write there.
		"-o", "APT::Sandbox::User=root",
	}
	if a.ownList {
		options = append(options, "-o", "Dir::State::lists="+filepath.Join(a.dir, "lists"))
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return output(cmd)
}

// output runs a command and puts what it complained about into the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// prune removes what former calls left, so that the cache holds one set of packages.
func prune(dir string, keep []Deb) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if slices.ContainsFunc(keep, func(d Deb) bool { return d.File == f.Name() }) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Key names a set of packages for a cache: their names, versions and checksums, and how they are made into a tree.
func Key(recipe string, debs []Deb) string {
	h := sha256.New()
	fmt.Fprintln(h, recipe)
	for _, d := range debs {
		fmt.Fprintln(h, d.File, d.Checksum)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
