// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/agentsession-dev/operator/hack/images/internal/layer"
)

// Bundle is where OpenSSL, GnuTLS and Go look for certificate authorities on Debian.
const Bundle = "etc/ssl/certs/ca-certificates.crt"

// passwd and group name root, the user that the images run as by default, and nobody.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n" +
		"nonroot:x:65532:65532:nonroot:/tmp/home:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group = "root:x:0:\ntty:x:5:\nnonroot:x:65532:\nnogroup:x:65534:\n"
)

// alternatives are the links that update-alternatives would have made in a maintainer script.
var alternatives = map[string]string{
	"usr/bin/awk":   "mawk",
	"usr/bin/which": "which.debianutils",
	"usr/bin/w":     "w.procps",
}

// Users adds the account files.
func Users(t *layer.Tree) {
	t.File("etc/passwd", 0o644, []byte(passwd))
	t.File("etc/group", 0o644, []byte(group))
}

// Certificates adds the bundle of certificate authorities of the package ca-certificates, found in dir.
func Certificates(ctx context.Context, t *layer.Tree, dir string, debs []Deb) error {
	unpacked := layer.New()
	for _, d := range debs {
		if err := unpack(ctx, unpacked, filepath.Join(dir, d.File), func(string, bool) bool { return true }); err != nil {
			return err
		}
	}
	bundle, err := bundleOf(unpacked)
	if err != nil {
		return err
	}
	t.File(Bundle, 0o644, bundle)
	return nil
}

// Root unpacks the packages into one tree that works as a container's root file system.
func Root(ctx context.Context, dir string, debs []Deb) (*layer.Tree, error) {
	t := layer.New()
	// Debian has one /usr; packages of bookworm still carry files for the old directories and need the links first.
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		t.Symlink(d, "usr/"+d)
		t.Dir("usr/"+d, 0o755)
	}
	var status bytes.Buffer
	for _, d := range debs {
		file := filepath.Join(dir, d.File)
		if err := unpack(ctx, t, file, wanted); err != nil {
			return nil, err
		}
		control, err := output(exec.CommandContext(ctx, "dpkg-deb", "--field", file))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", d.File, err)
		}
		status.WriteString(installed(string(control)))
	}
	// Scanners and `dpkg -l` read what is in the image from here.
	t.File("var/lib/dpkg/status", 0o644, status.Bytes())
	return t, finish(t)
}

// unpack reads a package's files as a stream: dpkg-deb knows its compressions, and nothing is written to disk.
func unpack(ctx context.Context, t *layer.Tree, file string, keep func(string, bool) bool) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
	}
	readErr := t.Tar(pipe, keep)
	if readErr != nil {
		_ = pipe.Close() // dpkg-deb ends when nobody reads
	}
	if waitErr := cmd.Wait(); readErr != nil || waitErr != nil {
		return fmt.Errorf("unpacking %s: %w: %s", filepath.Base(file), errors.Join(readErr, waitErr), bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// wanted leaves out what only a person at a terminal reads, but keeps every licence.
func wanted(name string, dir bool) bool {
	for _, prefix := range []string{"usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bug/"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	if strings.HasPrefix(name, "usr/share/doc/") {
		return !dir && path.Base(name) == "copyright"
	}
	return true
}

// installed turns a package's control fields into its entry in dpkg's database.
func installed(control string) string {
	first, rest, _ := strings.Cut(control, "\n")
	return first + "\nStatus: install ok installed\n" + strings.TrimRight(rest, "\n") + "\n\n"
}

// finish does what maintainer scripts do on a real installation. The loader's cache is left out on purpose: every library is in
// one of the loader's own directories, and making the cache would need root.
func finish(t *layer.Tree) error {
	bundle, err := bundleOf(t)
	if err != nil {
		return err
	}
	t.File(Bundle, 0o644, bundle)
	t.Symlink("usr/lib/ssl/cert.pem", "/"+Bundle) // OpenSSL's default, instead of a directory of hashed names
	Users(t)
	t.File("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
	if !t.Has("bin/sh") {
		t.Symlink("bin/sh", "dash")
	}
	for link, target := range alternatives {
		if !t.Has(link) && t.Has(path.Join(path.Dir(link), target)) {
			t.Symlink(link, target)
		}
	}
	for _, d := range []string{"dev", "home", "proc", "run", "sys", "var/lib", "var/log", "workspace"} {
		t.Dir(d, 0o755)
	}
	t.Dir("root", 0o700)
	t.Dir("tmp", 0o1777)
	t.Dir("var/tmp", 0o1777)
	return nil
}

// bundleOf joins the certificates as update-ca-certificates does when all are trusted.
func bundleOf(t *layer.Tree) ([]byte, error) {
	var bundle bytes.Buffer
	for _, name := range t.Glob("usr/share/ca-certificates/mozilla/*.crt") {
		pem, _ := t.Content(name)
		bundle.Write(bytes.TrimRight(pem, "\n"))
		bundle.WriteByte('\n')
	}
	if bundle.Len() == 0 {
		return nil, errors.New("the package ca-certificates has no certificates where they are expected (usr/share/ca-certificates/mozilla)")
	}
	return bundle.Bytes(), nil
}
