// SPDX-License-Identifier: Apache-2.0

package call

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// orders is init's end of the socket pair.
type orders struct{ fd int }

// next waits for an order and the descriptor for output that travels with it.
func (s *orders) next() (o Order, output int, err error) {
	r := orderReader{fd: s.fd, output: -1}
	o, err = readOrder(&r)
	if err == nil && r.output < 0 {
		err = errors.New("an order came without a place for its output")
	}
	if errors.Is(err, io.EOF) {
		err = errNoMore
	}
	return o, r.output, err
}

// orderReader reads the stream and takes the descriptor that comes with its first byte.
type orderReader struct{ fd, output int }

func (r *orderReader) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(r.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNRESET) || err == nil && n == 0:
			return 0, io.EOF
		case err != nil:
			return 0, err
		}
		return n, r.take(oob[:oobn])
	}
}

func (r *orderReader) take(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("reading what came with an order: %w", err)
	}
	if len(messages) != 1 {
		return fmt.Errorf("an order came with %d control messages instead of 1", len(messages))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return fmt.Errorf("reading the descriptor of an order: %w", err)
	}
	if len(fds) != 1 || r.output >= 0 {
		return fmt.Errorf("an order came with %d descriptors, or with more than one message of them", len(fds))
	}
	r.output = fds[0]
	return nil
}

// eased reads what is there while a call runs: the mark that it is to end by itself, or the end.
func (s *orders) eased() bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(s.fd, b[:], unix.MSG_DONTWAIT)
	return err == nil && n == 1 && b[0] == easeMark
}

// say writes one message.
func (s *orders) say(mark byte, text []byte) error {
	b := append(binary.BigEndian.AppendUint32([]byte{mark}, uint32(len(text))), text...) //nolint:gosec // an error text or nothing
	for len(b) > 0 {
		n, err := unix.Write(s.fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
