// SPDX-License-Identifier: Apache-2.0

// Package layer builds the file tree of one image layer in memory and writes it as a reproducible, gzipped tar archive.
//
// It decides what every entry of a layer looks like: owned by root, one fixed time, sorted, without set-user-ID and
// set-group-ID bits. The same tree gives the same bytes on every machine and as every user. It does not know where
// files come from, and never touches the file system.
package layer

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Epoch is the time of every file and of every image, so that equal content gives an equal digest.
var Epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// permissions leaves out the set-user-ID and set-group-ID bits: a session's tools must have nothing to gain from.
const permissions = 0o1777

// Tree is the content of a layer, by clean path without a leading slash.
type Tree struct {
	entries map[string]entry
}

type entry struct {
	kind byte // a tar type flag
	mode int64
	link string
	data []byte
}

// New returns an empty tree.
func New() *Tree { return &Tree{entries: map[string]entry{}} }

// Dir adds a directory. Where a symbolic link stands already, the link stays and the directory is what it points to,
// as with dpkg on a system whose /bin is a link to /usr/bin.
func (t *Tree) Dir(name string, mode int64) {
	p := t.resolve(name)
	if p == "" || t.entries[p].kind == tar.TypeSymlink {
		return
	}
	t.entries[p] = entry{kind: tar.TypeDir, mode: mode & permissions}
}

// File adds a regular file, replacing what was there.
func (t *Tree) File(name string, mode int64, data []byte) {
	t.entries[t.resolve(name)] = entry{kind: tar.TypeReg, mode: mode & permissions, data: data}
}

// Symlink adds a symbolic link, replacing what was there.
func (t *Tree) Symlink(name, target string) {
	t.entries[t.resolve(name)] = entry{kind: tar.TypeSymlink, mode: 0o777, link: target}
}

// Has says whether something stands at that path.
func (t *Tree) Has(name string) bool {
	_, ok := t.entries[t.resolve(name)]
	return ok
}

// Glob returns the paths of regular files that match the pattern of path.Match, sorted.
func (t *Tree) Glob(pattern string) []string {
	var found []string
	for _, p := range slices.Sorted(maps.Keys(t.entries)) {
		if ok, err := path.Match(pattern, p); err == nil && ok && t.entries[p].kind == tar.TypeReg {
			found = append(found, p)
		}
	}
	return found
}

// Content returns the bytes of a regular file.
func (t *Tree) Content(name string) ([]byte, bool) {
	e, ok := t.entries[t.resolve(name)]
	return e.data, ok && e.kind == tar.TypeReg
}

// Tar adds the entries of an archive for which keep is true; keep sees clean paths without a leading slash.
// Hard links become files of their own.
func (t *Tree) Tar(r io.Reader, keep func(name string, dir bool) bool) error {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		name := clean(h.Name)
		if name == "" || !keep(name, h.Typeflag == tar.TypeDir) {
			continue
		}
		if err := t.fromTar(name, h, archive); err != nil {
			return fmt.Errorf("reading %s from the archive: %w", name, err)
		}
	}
}

func (t *Tree) fromTar(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		t.Dir(name, h.Mode)
	case tar.TypeReg:
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		t.File(name, h.Mode, data)
	case tar.TypeSymlink:
		// A package may carry the very links of the merged /usr that the tree has already.
		if t.entries[clean(name)].link != h.Linkname {
			t.Symlink(name, h.Linkname)
		}
	case tar.TypeLink:
		target, ok := t.entries[t.resolve(h.Linkname)]
		if !ok {
			return fmt.Errorf("hard link to %s, which the archive does not have before it", h.Linkname)
		}
		t.entries[t.resolve(name)] = target
	default:
		return fmt.Errorf("entry of type %q: only files, directories and links belong in an image", h.Typeflag)
	}
	return nil
}

// WriteTo writes the tree as a gzipped tar archive. Missing parent directories are made with mode 0755.
func (t *Tree) WriteTo(w io.Writer) (int64, error) {
	counter := &countingWriter{w: w}
	// Speed, not size: these layers go to a local node or are pushed once.
	zipped, err := gzip.NewWriterLevel(counter, gzip.BestSpeed)
	if err != nil {
		return 0, err
	}
	archive := tar.NewWriter(zipped)
	entries := t.withParents()
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := writeEntry(archive, name, entries[name]); err != nil {
			return counter.n, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return counter.n, errors.Join(archive.Close(), zipped.Close())
}

func writeEntry(archive *tar.Writer, name string, e entry) error {
	if e.kind == tar.TypeDir {
		name += "/"
	}
	h := &tar.Header{
		Typeflag: e.kind, Name: name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.data)), ModTime: Epoch,
	}
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	_, err := archive.Write(e.data)
	return err
}

func (t *Tree) withParents() map[string]entry {
	all := maps.Clone(t.entries)
	for name := range t.entries {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = entry{kind: tar.TypeDir, mode: 0o755}
			}
		}
	}
	return all
}

// resolve follows a link in the first path element, which is where a merged /usr has its links.
func (t *Tree) resolve(name string) string {
	p := clean(name)
	top, rest, below := strings.Cut(p, "/")
	if e := t.entries[top]; below && e.kind == tar.TypeSymlink {
		return clean(path.Join(e.link, rest))
	}
	return p
}

// clean keeps every path inside the tree: dots that lead out of it end at its root.
func clean(name string) string { return path.Clean("/" + name)[1:] }

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
