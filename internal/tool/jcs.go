// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// rawObject is JSON that is to be put into its canonical form too.
type rawObject []byte

func requestDigest(v map[string]any) (string, error) {
	var b bytes.Buffer
	if err := canonicalize(&b, v); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

// canonicalize writes a value in the form of RFC 8785. No tool takes fractions, so there are
// no numbers but those that a float64 holds exactly.
func canonicalize(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		canonicalString(b, v)
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil || n > 1<<53 || n < -1<<53 {
			return fmt.Errorf("the number %.40s is no integer that every JSON reader keeps", v)
		}
		b.WriteString(strconv.FormatInt(n, 10))
	case rawObject:
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		var decoded map[string]any
		if err := d.Decode(&decoded); err != nil {
			return err
		}
		return canonicalize(b, decoded)
	case []any:
		for i, e := range v {
			b.WriteByte("[,"[min(i, 1)])
			if err := canonicalize(b, e); err != nil {
				return err
			}
		}
		if len(v) == 0 {
			b.WriteByte('[')
		}
		b.WriteByte(']')
	case map[string]any:
		return canonicalMembers(b, v)
	default:
		return fmt.Errorf("%T has no canonical form", v)
	}
	return nil
}

// canonicalMembers orders members by the UTF-16 code units of their names.
func canonicalMembers(b *bytes.Buffer, v map[string]any) error {
	names := slices.SortedFunc(maps.Keys(v), func(x, y string) int {
		return cmp.Or(slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y))), cmp.Compare(x, y))
	})
	b.WriteByte('{')
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		canonicalString(b, n)
		b.WriteByte(':')
		if err := canonicalize(b, v[n]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// canonicalString escapes what JSON demands and nothing else.
func canonicalString(b *bytes.Buffer, s string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	b.WriteByte('"')
	for _, r := range s {
		switch e, ok := short[r]; {
		case ok:
			b.WriteString(e)
		case r < ' ':
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
