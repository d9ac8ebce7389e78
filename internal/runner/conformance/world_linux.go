// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const original = "original content\n"

// prepare makes one directory of fixtures.
func prepare(dir string, user int) error {
	file := func(name string) error {
		p := filepath.Join(dir, name)
		return errors.Join(os.WriteFile(p, []byte(original), 0o644), unix.Setxattr(p, "user.original", []byte("1"), 0))
	}
	err := errors.Join(
		os.Mkdir(dir, 0o755), file("file"), file("other"), os.Mkdir(filepath.Join(dir, "empty"), 0o755),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755), file("sub/file"),
		os.Symlink("file", filepath.Join(dir, "link")),
		os.Link(filepath.Join(dir, "other"), filepath.Join(dir, "second-name")))
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && user >= 0 {
			err = os.Lchown(p, user, user)
		}
		if err == nil && d.Type()&fs.ModeSymlink == 0 {
			err = os.Chtimes(p, time.Unix(1e9, 0), time.Unix(1e9, 0))
		}
		return err
	})
}

// State is what there is to know about each file, by path.
type State map[string]string

// Fixtures are the directories of an attempt, as the calls see them. Outside is neither in the workspace
// nor temporary; it is empty where there is none.
type Fixtures struct {
	Dir     string `json:"dir"`
	Outside string `json:"outside,omitempty"`
}

// Host is where a path of the calls is for this process.
type Host func(string) string

func (f Fixtures) places(host Host) []string {
	if f.Outside == "" {
		return []string{host(f.Dir)}
	}
	return []string{host(f.Dir), host(f.Outside)}
}

// Prepare makes the fixtures. User is who owns them; -1 leaves them as created.
func (f Fixtures) Prepare(host Host, user int) error {
	for _, p := range f.places(host) {
		if err := prepare(p, user); err != nil {
			return err
		}
	}
	if f.Outside == "" {
		return nil
	}
	return os.Symlink(f.Outside, filepath.Join(host(f.Dir), "out")) // it leads out, as the calls see it
}

// Describe says what the fixtures are now.
func (f Fixtures) Describe(host Host) (State, error) { return snapshot(f.places(host)...) }

// Remove removes them, and what was made in them.
func (f Fixtures) Remove(host Host) (err error) {
	for _, p := range f.places(host) {
		err = errors.Join(err, os.RemoveAll(p))
	}
	return err
}

// snapshot describes trees: content, type, mode, owner, times, links, attributes and flags.
func snapshot(dirs ...string) (State, error) {
	s := State{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if err == nil {
				s[p], err = describe(p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func describe(p string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return "", err
	}
	text := fmt.Sprintf("inode %d, mode %o, owner %d:%d, names %d, mtime %d.%09d, size %d",
		st.Ino, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec, st.Size)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		to, err := os.Readlink(p)
		return text + ", to " + to, err
	case unix.S_IFREG:
		b, err := os.ReadFile(p)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(", content %x", sha256.Sum256(b))
	case unix.S_IFDIR:
	default:
		return text, nil
	}
	more, err := attributes(p)
	return text + more, err
}

// attributes reads extended attributes and inode flags.
func attributes(p string) (string, error) {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(p, names)
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return "", err
	}
	var b strings.Builder
	for name := range strings.SplitSeq(string(names[:max(n, 0)]), "\x00") {
		value := make([]byte, 4096)
		if n, err := unix.Lgetxattr(p, name, value); name != "" && err == nil {
			fmt.Fprintf(&b, ", %s=%q", name, value[:n])
		}
	}
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		fmt.Fprintf(&b, ", flags %x", flags)
	}
	return b.String(), nil
}

// difference names the first file that is another, or nothing.
func (s State) difference(t State) string {
	names := slices.Collect(maps.Keys(s))
	names = slices.AppendSeq(names, maps.Keys(t))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		switch a, b := s[n], t[n]; {
		case a == b:
		case a == "":
			return fmt.Sprintf("%s is there (%s)", n, b)
		case b == "":
			return n + " is gone"
		default:
			return fmt.Sprintf("%s was {%s} and is {%s}", n, a, b)
		}
	}
	return ""
}
