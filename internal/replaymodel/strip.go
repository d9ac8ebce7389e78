// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
)

// cacheMarker is the member that marks a cache breakpoint. It moves from request
// to request and is not part of what the model reads.
const cacheMarker = "cache_control"

// editObject passes each member's value through edit, which returns what stands
// in its place, or false to remove the member. Every other byte stays as it was
// received: a member goes with the comma that its sender wrote for it.
func editObject(raw []byte, edit func(name string, value []byte) ([]byte, bool)) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil {
		return nil, err
	} else if tok != json.Delim('{') {
		return nil, errors.New("it does not begin with {")
	}
	end := dec.InputOffset()
	out := append([]byte(nil), raw[:end]...)
	first := true // no member is kept yet
	for dec.More() {
		begin := end // before the comma
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		end = dec.InputOffset()
		name, _ := tok.(string)
		have, keep := edit(name, value)
		if !keep {
			continue
		}
		head := raw[begin : end-int64(len(value))]
		if comma := bytes.IndexByte(head, ','); first && comma >= 0 && comma < bytes.IndexByte(head, '"') {
			head = head[comma+1:] // the members before it are gone
		}
		out = append(append(out, head...), have...)
		first = false
	}
	return append(out, raw[end:]...), nil
}

// editList passes each element of an array through edit; all else stays as received.
func editList(raw []byte, edit func([]byte) ([]byte, error)) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil {
		return nil, err
	} else if tok != json.Delim('[') {
		return nil, errors.New("it does not begin with [")
	}
	end := dec.InputOffset()
	out := append([]byte(nil), raw[:end]...)
	for dec.More() {
		begin := end
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		end = dec.InputOffset()
		have, err := edit(value)
		if err != nil {
			return nil, err
		}
		out = append(append(out, raw[begin:end-int64(len(value))]...), have...)
	}
	return append(out, raw[end:]...), nil
}

// stripMarkers removes the breakpoint of an object and, where it is a tool
// result, those of the blocks within; what a tool is given as input is not
// touched. A breakpoint that is null marks nothing.
func stripMarkers(raw []byte) (out []byte, marked bool, err error) {
	out, err = editObject(raw, func(name string, value []byte) ([]byte, bool) {
		switch {
		case name == cacheMarker:
			marked = marked || string(value) != "null"
			return nil, false
		case name == "content" && value[0] == '[':
			stripped, within, listErr := stripList(value)
			if listErr != nil {
				return value, true // no list of blocks: whoever decodes it says so
			}
			marked = marked || within
			return stripped, true
		}
		return value, true
	})
	return out, marked, err
}

// stripList does the same for a list of blocks or tools.
func stripList(raw []byte) (out []byte, marked bool, err error) {
	out, err = editList(raw, func(element []byte) ([]byte, error) {
		stripped, m, err := stripMarkers(element)
		marked = marked || m
		return stripped, err
	})
	return out, marked, err
}
