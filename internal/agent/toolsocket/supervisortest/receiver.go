// SPDX-License-Identifier: Apache-2.0

package supervisortest

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/tool"
)

// receiver reads a connection and keeps the descriptors that come beside its bytes.
type receiver struct {
	conn *net.UnixConn
	fds  []int
}

func (r *receiver) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := r.conn.ReadMsgUnix(b, oob)
	messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			r.fds = append(r.fds, fds...)
		}
	}
	if err == nil {
		err = parseErr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

// next is the far end of the terminal that came with the start of a call, if one has to.
func (r *receiver) next(name string) *os.File {
	if name != tool.TerminalName || len(r.fds) == 0 {
		return nil
	}
	fd := r.fds[0]
	r.fds = r.fds[1:]
	_ = unix.SetNonblock(fd, true) // so that Close ends a Read
	return os.NewFile(uintptr(fd), "terminal")
}

func (r *receiver) drop() {
	for _, fd := range r.fds {
		_ = unix.Close(fd)
	}
}
