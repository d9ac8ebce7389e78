// SPDX-License-Identifier: Apache-2.0

package toolsocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// maxFirst bounds the first frame, which comes from nobody in particular.
const maxFirst = 64 << 10

// listen makes a container's lock, which is never replaced, and then its socket.
func listen(dir string) (*net.UnixListener, error) {
	lock := filepath.Join(dir, wire.LockName)
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	switch {
	case err == nil:
		err = errors.Join(f.Chmod(0o444), f.Close()) // whatever the umask is
	case errors.Is(err, os.ErrExist):
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating the lock of a tools container: %w", err)
	}
	socket := filepath.Join(dir, wire.SocketName)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing a stale control socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for a supervisor: %w", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the control socket to the tools user: %w", err), l.Close())
	}
	return l, nil
}

// readFirst reads the first frame of a connection and the descriptor beside it, or -1.
func readFirst(c *net.UnixConn) (wire.Frame, int, error) {
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(head, oob)
	fd, fdErr := oneDescriptor(oob[:oobn])
	if err = errors.Join(err, fdErr); err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		closeFD(fd)
		return wire.Frame{}, -1, fmt.Errorf("reading the first frame: %w", err)
	}
	f, err := wire.ReadFrame(io.MultiReader(bytes.NewReader(head[:n]), io.LimitReader(c, maxFirst)))
	if err != nil {
		closeFD(fd)
		return wire.Frame{}, -1, err
	}
	return f, fd, nil
}

// oneDescriptor returns the passed descriptor and closes whatever else was passed.
func oneDescriptor(oob []byte) (int, error) {
	fd := -1
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fd, fmt.Errorf("reading what was passed: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // something else than descriptors
		}
		for _, other := range fds {
			closeFD(fd)
			fd = other
		}
	}
	return fd, nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// prove accepts a descriptor only from who holds the container's lock, which only the
// supervisor can: it took it before any command existed, and no command can take the
// descriptor from it. Locking through a descriptor of one's own is refused while
// somebody holds the lock; locking through the holder's own succeeds. The
// passed descriptor must be closed at once: a duplicate kept here would lock out
// the next supervisor.
func prove(lockPath string, fd int) error {
	if fd < 0 {
		return errors.New("no descriptor of the lock was passed")
	}
	own, err := unix.Open(lockPath, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	defer closeFD(own)
	var mine, theirs unix.Stat_t
	if err := errors.Join(unix.Fstat(own, &mine), unix.Fstat(fd, &theirs)); err != nil {
		return fmt.Errorf("comparing the lock: %w", err)
	}
	if mine.Dev != theirs.Dev || mine.Ino != theirs.Ino {
		return errors.New("the descriptor is of another file than the lock")
	}
	if err := unix.Flock(own, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("nobody holds the lock")
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("somebody else holds the lock")
	}
	return nil
}
