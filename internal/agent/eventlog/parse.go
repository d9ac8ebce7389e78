// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// parseLine reads a line. The event's Data is a part of it. prev is the digest that
// the line should name; it saves a copy when it does.
func parseLine(line []byte, prev string) (Event, error) {
	e, ok := parseOwn(line, prev)
	if !ok {
		if err := json.Unmarshal(line, &e); err != nil {
			return Event{}, fmt.Errorf("not an event: %w", err)
		}
	}
	switch {
	case e.Seq == 0 || !e.Type.valid():
		return Event{}, errors.New("not an event: seq or type is missing")
	case len(e.Data) == 0 || e.Data[0] != '{':
		return Event{}, errors.New("not an event: data is not an object")
	case e.Durable >= e.Seq:
		return Event{}, fmt.Errorf("event %d claims that event %d was durable before it", e.Seq, e.Durable)
	}
	return e, nil
}

// tailLen is the length of what follows the durable mark of a line.
var tailLen = len(`,"prev":"`) + len(Genesis) + len(`"}`)

// parseOwn reads a line as appendLine writes it, which is many times faster than
// reading JSON of any shape. Of other lines it says nothing. What it accepts is
// JSON, with the same meaning.
func parseOwn(line []byte, prev string) (e Event, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok || len(rest) < tailLen {
		return Event{}, false
	}
	end := bytes.IndexByte(rest, ',')
	if end < 0 {
		return Event{}, false
	}
	if e.Seq, ok = number(rest[:end]); !ok {
		return Event{}, false
	}
	at, rest, ok := quoted(rest[end:], `,"time":"`)
	if !ok || e.Time.UnmarshalText(at) != nil {
		return Event{}, false
	}
	kind, rest, ok := quoted(rest, `,"type":"`)
	if !ok || !Type(kind).valid() {
		return Event{}, false
	}
	if e.Type, ok = interned[string(kind)]; !ok {
		e.Type = Type(kind)
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"data":`)); !ok || len(rest) < tailLen {
		return Event{}, false
	}
	rest, tail := rest[:len(rest)-tailLen], rest[len(rest)-tailLen:]
	digest, tail, ok := quoted(tail, `,"prev":"`)
	if !ok || string(tail) != "}" {
		return Event{}, false
	}
	if e.Prev = prev; string(digest) != prev {
		if e.Prev = string(digest); !isHex(digest) {
			return Event{}, false
		}
	}
	digits := len(bytes.TrimRight(rest, "0123456789"))
	if e.Durable, ok = number(rest[digits:]); !ok {
		return Event{}, false
	}
	data, ok := bytes.CutSuffix(rest[:digits], []byte(`,"durable":`))
	if !ok || len(data) == 0 || data[0] != '{' || !json.Valid(data) {
		return Event{}, false
	}
	e.Data = data
	return e, true
}

// quoted cuts off a name and the string that follows it, which must need no unescaping.
func quoted(b []byte, name string) (value, rest []byte, ok bool) {
	if b, ok = bytes.CutPrefix(b, []byte(name)); !ok {
		return nil, nil, false
	}
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, nil, false
	}
	return b[:end], b[end+1:], true
}

// number reads what JSON has for a number that fits 64 bits, and nothing else.
func number(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 1 && b[0] == '0' {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' || n > (math.MaxUint64-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// interned are the known types, so that reading a line makes no copy of its type.
var interned = func() map[string]Type {
	types := make(map[string]Type, len(summaries))
	for t := range summaries {
		types[string(t)] = t
	}
	return types
}()
