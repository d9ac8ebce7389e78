// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/tool"
)

// maxReadFile is the largest file that is looked at, in bytes.
const maxReadFile = 16 << 20

func read(workspace string, a *tool.Read) (text, version string, err error) {
	t, name, err := locate(workspace, a.Path)
	if err != nil {
		return "", "", err
	}
	// Non-blocking: opening a FIFO would wait for a writer.
	f, err := t.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", "", failed("read", a.Path, StatusDeniedRead, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", "", failed("read", a.Path, StatusDeniedRead, err)
	}
	switch {
	case st.IsDir():
		return "", "", fmt.Errorf("cannot read %s: it is a directory; list it with bash", a.Path)
	case !st.Mode().IsRegular():
		return "", "", fmt.Errorf("cannot read %s: it is not a regular file", a.Path)
	case st.Size() > maxReadFile:
		return "", "", fmt.Errorf("cannot read %s: its %d bytes are more than %d; look at a part of it with bash", a.Path, st.Size(), maxReadFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxReadFile+1))
	if err != nil {
		return "", "", failed("read", a.Path, StatusDeniedRead, err)
	}
	if bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return "", "", fmt.Errorf("cannot read %s: it is not UTF-8 text (%d bytes); look at it with bash", a.Path, len(b))
	}
	return a.Part(string(b)), tool.VersionOf(string(b)), nil
}
