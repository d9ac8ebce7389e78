// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// redactedMark stands where a secret was. It needs no escape in JSON.
const redactedMark = "[redacted]"

// minSecret is the shortest text that is looked for: less would hit ordinary words.
const minSecret = 8

// redact replaces each secret wherever it stands inside a string of a JSON value.
// It looks at strings as they are written, so that escapes neither hide a secret
// nor get torn apart.
func redact(data []byte, secrets []string) []byte {
	for _, secret := range worthHiding(secrets) {
		if term := inString(secret); bytes.Contains(data, term) {
			data = replaceInStrings(data, term)
		}
	}
	return data
}

// inString is a text as this package writes it inside a JSON string.
func inString(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return []byte(s) // a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes()[1:], []byte("\"\n"))
}

func replaceInStrings(data, term []byte) []byte {
	out := make([]byte, 0, len(data))
	inside := false
	for i := 0; i < len(data); {
		n := 1
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case inside && bytes.HasPrefix(data[i:], term):
			out = append(out, redactedMark...)
			i += len(term)
			continue
		case c == '\\' && i+1 < len(data):
			if n = 2; data[i+1] == 'u' {
				n = 6
			}
		}
		n = min(n, len(data)-i)
		out = append(out, data[i:i+n]...)
		i += n
	}
	return out
}

// Redact replaces each secret in a text.
func Redact(text string, secrets []string) string {
	for _, secret := range worthHiding(secrets) {
		text = strings.ReplaceAll(text, secret, redactedMark)
	}
	return text
}
