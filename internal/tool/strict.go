// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

const maxDepth = 16

// strictObject reads one JSON object whose keys occur once each, at any depth, in
// valid UTF-8 and with nothing behind it. (encoding/json takes the last of two equal keys,
// replaces invalid UTF-8 and matches keys in any case: three ways in which a
// check and an execution could read different things.)
func strictObject(raw []byte) (map[string]any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("they are not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	v, err := strictValue(d, 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("they are not complete JSON")
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the JSON object")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("they must be one JSON object")
	}
	return object, nil
}

func strictValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("they are nested deeper than %d levels", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return strictMembers(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := strictValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

func strictMembers(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string) // the decoder accepts nothing else here
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("the key %q is given twice", key)
		}
		if object[key], err = strictValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}
