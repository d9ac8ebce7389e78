// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxFiles is more than a ConfigMap can hold, in bytes.
const maxFiles = 4 << 20

// Files is a mounted ConfigMap.
type Files struct {
	Dir  string // where it is mounted
	Name string // of the ConfigMap
}

// copy makes plain files of the mount's links, which lead into a directory that the
// kubelet replaces. Names that begin with ".." are the kubelet's own.
func (f *Files) copy(workspace string) (record, error) {
	from, err := os.OpenRoot(f.Dir)
	if err != nil {
		return record{}, fmt.Errorf("opening the mounted ConfigMap: %w", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(workspace)
	if err != nil {
		return record{}, fmt.Errorf("opening the workspace: %w", err)
	}
	defer to.Close()
	entries, err := fs.ReadDir(from.FS(), ".")
	if err != nil {
		return record{}, fmt.Errorf("reading the mounted ConfigMap: %w", err)
	}
	left, copied := int64(maxFiles), 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		n, err := copyFile(from, to, e.Name(), left)
		if err != nil {
			return record{}, fmt.Errorf("copying %q: %w", e.Name(), err)
		}
		left, copied = left-n, copied+1
	}
	if copied == 0 {
		return record{}, act("the ConfigMap %s does not exist in the session's namespace, or has no keys: create it", f.Name)
	}
	return record{Files: f.Name}, nil
}

func copyFile(from, to *os.Root, name string, most int64) (n int64, err error) {
	in, err := from.Open(name)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	switch {
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, errors.New("it is no file")
	case info.Size() > most:
		return 0, fmt.Errorf("the files have more than %d bytes together", maxFiles)
	}
	out, err := to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, io.LimitReader(in, most))
	return n, errors.Join(err, out.Close())
}
