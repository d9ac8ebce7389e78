// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxHeader bounds the header line: it holds names and numbers only.
const maxHeader = 64 << 10

// header is the first line of a segment. It is not an event and not in the chain;
// it says where in the chain the segment's first event goes.
type header struct {
	Magic   string    `json:"magic"`
	Version int       `json:"version"`
	Boot    int       `json:"boot"`
	PodUID  string    `json:"podUID"`
	Time    time.Time `json:"time"`
	// Last is the last event of the predecessors that is kept. It was on disk
	// before this line was written.
	Last Head `json:"last"`
}

func encodeHeader(h header) ([]byte, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding segment header: %w", err)
	}
	return append(line, '\n'), nil
}

// errNotALog and errVersion are kept apart from damage: the file is whole, it is
// just not ours to read.
var (
	errNotALog = errors.New("not an agent session log (the first line does not carry the magic " + Magic + ")")
	errVersion = errors.New("unknown log format version")
)

// parseHeader checks the magic, then the version, then the content.
func parseHeader(line []byte) (header, error) {
	var probe struct {
		Magic   string `json:"magic"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(line, &probe); err != nil || probe.Magic != Magic {
		return header{}, errNotALog
	}
	if probe.Version != Version {
		return header{}, fmt.Errorf("%w %d: this program reads version %d; use the agent version that wrote it, or a newer one",
			errVersion, probe.Version, Version)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, fmt.Errorf("header: %w", err)
	}
	if h.Boot < 1 || len(h.Last.Digest) != len(Genesis) || (h.Last.Seq == 0) != (h.Last.Digest == Genesis) {
		return header{}, errors.New("header: boot or predecessor makes no sense")
	}
	return h, nil
}

// appendLine renders an event without a newline. The order of the fields is part
// of the format, and so is the rendering: no HTML escapes, no spaces.
func appendLine(b []byte, e Event) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"time":"`...)
	b = e.Time.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","data":`...)
	b = append(b, e.Data...)
	b = append(b, `,"durable":`...)
	b = strconv.AppendUint(b, e.Durable, 10)
	b = append(b, `,"prev":"`...)
	b = append(b, e.Prev...)
	return append(b, `"}`...)
}

// valid keeps types writable without escapes.
func (t Type) valid() bool {
	for _, c := range []byte(t) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return t != "" && len(t) <= 128
}

// encodeData renders a payload as one compact JSON object.
func encodeData(buf *bytes.Buffer, data any) error {
	buf.Reset()
	if data == nil {
		buf.WriteString("{}")
		return nil
	}
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return err
	}
	buf.Truncate(buf.Len() - 1) // the encoder's newline
	if buf.Bytes()[0] != '{' {
		return fmt.Errorf("%T is not a JSON object", data)
	}
	return nil
}

// lineReader reads lines of bounded length from bytes of any kind.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10)}
}

var (
	errNoNewline = errors.New("the line is not complete")
	errTooLong   = fmt.Errorf("the line is longer than %d MiB", MaxLine>>20)
)

// next returns the next line without its newline and how many bytes it took from
// the file. The slice is valid until the next call. At the end it is io.EOF; a
// last line without a newline is errNoNewline, an oversized one errTooLong, and
// reading may go on behind that.
func (r *lineReader) next(limit int) (line []byte, n int64, err error) {
	r.buf = r.buf[:0]
	tooLong := false
	for {
		chunk, err := r.r.ReadSlice('\n')
		n += int64(len(chunk))
		if err == nil && n == int64(len(chunk)) && len(chunk) <= limit+1 {
			return chunk[:len(chunk)-1], n, nil // whole in the buffer, as most are
		}
		switch {
		case tooLong:
		case len(r.buf)+len(chunk) > limit+1:
			tooLong = true
		default:
			r.buf = append(r.buf, chunk...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && n == 0:
			return nil, 0, io.EOF
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, n, errTooLong
		case errors.Is(err, io.EOF):
			return nil, n, errNoNewline
		case err != nil:
			return nil, n, fmt.Errorf("reading: %w", err)
		}
		return r.buf[:len(r.buf)-1], n, nil
	}
}
