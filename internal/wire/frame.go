// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

const lengthBytes = 4

// EncodeFrame renders a frame: its length in 4 bytes, big-endian, and its JSON.
func EncodeFrame(f Frame) ([]byte, error) {
	if name, err := f.Member(); err != nil {
		return nil, fmt.Errorf("encoding frame %s: %w", name, err)
	}
	body, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encoding frame: %w", err)
	}
	if len(body) > MaxFrame {
		return nil, fmt.Errorf("encoding frame: %d bytes are more than %d", len(body), MaxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, lengthBytes+len(body)), uint32(len(body))), body...), nil
}

// WriteFrame writes a frame in one Write.
func WriteFrame(w io.Writer, f Frame) error {
	b, err := EncodeFrame(f)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// ReadFrame reads one frame. io.EOF means that the peer ended between two frames;
// every other error means that the connection is of no use any more.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [lengthBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return Frame{}, fmt.Errorf("reading frame: a length of %d bytes is not between 1 and %d", n, MaxFrame)
	}
	var body bytes.Buffer // grows with what really comes, not with what was announced
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return Frame{}, fmt.Errorf("reading frame: %w", errors.Join(io.ErrUnexpectedEOF, err))
	}
	var f Frame
	if err := json.Unmarshal(body.Bytes(), &f); err != nil {
		return Frame{}, fmt.Errorf("reading frame: %w", err)
	}
	if _, err := f.Member(); err != nil {
		return Frame{}, fmt.Errorf("reading frame %.80q: %w", body.Bytes(), err)
	}
	return f, nil
}

// Member returns the name of the one member that is set. None or several are an error:
// a frame that is not understood must end the connection.
func (f Frame) Member() (string, error) {
	name := ""
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			continue
		}
		if name != "" {
			return name, errors.New("it has more than one member")
		}
		name = v.Type().Field(i).Name
	}
	if name == "" {
		return "", errors.New("it has no member that is known here")
	}
	return name, nil
}
