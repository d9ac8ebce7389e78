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
type orders struct {
	fd  int
	buf [16 << 10]byte // for an order of the usual size
}

// next waits for an order and the descriptor for output that travels with it.
func (s *orders) next() (a assignment, output int, err error) {
	r := orderReader{fd: s.fd, output: -1}
	body, err := r.body(s.buf[:])
	switch {
	case errors.Is(err, io.EOF):
		return a, r.output, errNoMore
	case err != nil:
		return a, r.output, err
	case r.output < 0:
		return a, r.output, errors.New("an order came without a place for its output")
	}
	a, err = decodeOrder(body)
	return a, r.output, err
}

// orderReader reads the stream and takes the descriptor that comes with its first byte.
type orderReader struct{ fd, output int }

// body reads one order, into buf if it fits. Nothing comes behind it before its end was told.
func (r *orderReader) body(buf []byte) ([]byte, error) {
	const head = 4
	n, want := 0, head
	for n < want {
		m, err := r.read(buf[n:])
		if err != nil {
			return nil, err
		}
		if n += m; n < head || want > head {
			continue
		}
		size := binary.BigEndian.Uint32(buf)
		if size > maxOrder {
			return nil, fmt.Errorf("reading order: %d bytes are more than %d", size, maxOrder)
		}
		if want = head + int(size); want > len(buf) {
			buf = append(make([]byte, 0, want), buf[:n]...)[:want]
		}
	}
	if n != want {
		return nil, fmt.Errorf("reading order: %d bytes came behind it", n-want)
	}
	return buf[head:n], nil
}

func (r *orderReader) read(b []byte) (int, error) {
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
