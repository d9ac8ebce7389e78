// SPDX-License-Identifier: Apache-2.0

package layer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a reader of the layer sees.
type seen struct {
	Name, Link string
	Mode       int64
	UID, GID   int
	Body       string
}

func read(t *testing.T, tree *Tree) []seen {
	t.Helper()
	var zipped bytes.Buffer
	if _, err := tree.WriteTo(&zipped); err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(&zipped)
	if err != nil {
		t.Fatal(err)
	}
	var all []seen
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(Epoch) {
			t.Errorf("%s has time %v, want %v", h.Name, h.ModTime, Epoch)
		}
		all = append(all, seen{h.Name, h.Linkname, h.Mode, h.Uid, h.Gid, string(body)})
	}
}

func keepAll(string, bool) bool { return true }

func archiveOf(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := "content of " + h.Name
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestALayerIsSortedOwnedByRootAndHasItsParents(t *testing.T) {
	tree := New()
	tree.File("z/deep/file", 0o644, []byte("z"))
	tree.Dir("tmp", 0o1777)
	tree.Symlink("a", "z/deep/file")
	want := []seen{
		{Name: "a", Link: "z/deep/file", Mode: 0o777},
		{Name: "tmp/", Mode: 0o1777},
		{Name: "z/", Mode: 0o755},
		{Name: "z/deep/", Mode: 0o755},
		{Name: "z/deep/file", Mode: 0o644, Body: "z"},
	}
	if diff := cmp.Diff(want, read(t, tree)); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestFilesOfAMergedDirectoryLandBehindTheLink(t *testing.T) {
	tree := New()
	tree.Symlink("bin", "usr/bin")
	err := tree.Tar(archiveOf(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "./bin/cat", Mode: 0o755, Uid: 7, Gid: 8},
		tar.Header{Typeflag: tar.TypeLink, Name: "./bin/other", Linkname: "./bin/cat"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./bin", Linkname: "usr/bin"},
	), keepAll)
	if err != nil {
		t.Fatal(err)
	}
	want := []seen{
		{Name: "bin", Link: "usr/bin", Mode: 0o777},
		{Name: "usr/", Mode: 0o755},
		{Name: "usr/bin/", Mode: 0o755},
		{Name: "usr/bin/cat", Mode: 0o755, Body: "content of ./bin/cat"},
		{Name: "usr/bin/other", Mode: 0o755, Body: "content of ./bin/cat"},
	}
	// The directory behind the link exists only through its files here, so its mode is the default.
	if diff := cmp.Diff(want, read(t, tree)); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestSetUserAndSetGroupBitsAreGone(t *testing.T) {
	tree := New()
	err := tree.Tar(archiveOf(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755},
		tar.Header{Typeflag: tar.TypeReg, Name: "write", Mode: 0o2755},
		tar.Header{Typeflag: tar.TypeDir, Name: "mail/", Mode: 0o2775},
	), keepAll)
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, tree)
	if len(got) != 3 {
		t.Fatalf("the layer has %d entries, want 3", len(got))
	}
	for _, s := range got {
		if s.Mode&0o6000 != 0 {
			t.Errorf("%s has mode %o", s.Name, s.Mode)
		}
	}
}

func TestNoPathLeavesTheTree(t *testing.T) {
	tree := New()
	if err := tree.Tar(archiveOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "../../etc/x", Mode: 0o600}), keepAll); err != nil {
		t.Fatal(err)
	}
	got := read(t, tree)
	if diff := cmp.Diff("etc/x", got[len(got)-1].Name); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotAFileIsRefused(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"a device":               {Typeflag: tar.TypeChar, Name: "dev/null"},
		"a link to nothing seen": {Typeflag: tar.TypeLink, Name: "x", Linkname: "y"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := New().Tar(archiveOf(t, h), keepAll); err == nil {
				t.Error("Tar() took it")
			}
		})
	}
}

func TestTheOrderOfAddingDoesNotMatter(t *testing.T) {
	one, other := New(), New()
	one.File("a", 0o644, []byte("1"))
	one.File("b/c", 0o644, []byte("2"))
	other.File("b/c", 0o644, []byte("2"))
	other.File("a", 0o644, []byte("1"))
	var x, y bytes.Buffer
	if _, err := one.WriteTo(&x); err != nil {
		t.Fatal(err)
	}
	if _, err := other.WriteTo(&y); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x.Bytes(), y.Bytes()) {
		t.Error("equal trees gave different bytes")
	}
}
