// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// No secret survives in any string of a payload, keys included; what is left is
// JSON, and where no secret stood nothing changes.
func TestRedact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]string{`\`, `"`, "n", "u", "0", "e", "a", "<", "\n", "\x01", "é", "\u2028", "9"})
		secret := strings.Join(rapid.SliceOfN(alphabet, 8, 12).Draw(t, "secret"), "")
		text := func(label string) string {
			parts := rapid.SliceOfN(rapid.OneOf(alphabet, rapid.Just(secret), rapid.Just(secret[:4])), 0, 8).Draw(t, label)
			return strings.Join(parts, "")
		}
		var data bytes.Buffer
		payload := map[string]any{text("key"): text("value"), "list": []any{text("element"), 12345678901, true}}
		if err := encodeData(&data, payload); err != nil {
			t.Fatal(err)
		}
		before := data.String()
		got := redact(data.Bytes(), []string{"", "short", secret})
		var back map[string]any
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%s became %s: %v", before, got, err)
		}
		hit := false
		for key, value := range payload {
			for _, s := range append(asStrings(value), key) {
				hit = hit || strings.Contains(s, secret)
			}
		}
		for key, value := range back {
			for _, s := range append(asStrings(value), key) {
				if strings.Contains(s, secret) {
					t.Fatalf("%q is still in %s", secret, got)
				}
			}
		}
		if !hit && string(got) != before || hit && !bytes.Contains(got, []byte(redactedMark)) {
			t.Fatalf("%s became %s, secret %q", before, got, secret)
		}
	})
}

func asStrings(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, element := range v {
			all = append(all, asStrings(element)...)
		}
	}
	return all
}

// A number that happens to be a secret's digits stays what it is.
func TestRedactLeavesNumbers(t *testing.T) {
	got := redact([]byte(`{"n":1234567890,"s":"1234567890"}`), []string{"1234567890"})
	if want := `{"n":1234567890,"s":"[redacted]"}`; string(got) != want {
		t.Errorf("redact() = %s, want %s", got, want)
	}
}

// Secrets are asked for at each append, reach neither file nor mirror, and the
// event that Append returns is the one in the file.
func TestSecretsStayOut(t *testing.T) {
	dir := t.TempDir()
	secret := "sk-first-secret"
	var mirrored bytes.Buffer
	o := testOptions()
	o.Secrets = func() []string { return []string{secret} }
	o.Mirror = func(line []byte) { mirrored.Write(line) }
	l, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		e, err := l.AppendSync(TypeToolResult, ToolResult{Text: "key=" + secret + "&"})
		if err != nil || string(e.Data) != `{"callID":"","text":"key=[redacted]&"}` {
			t.Errorf("AppendSync() = %s, %v", e.Data, err)
		}
		if file := mustRead(t, segments(t, dir)[0]); bytes.Contains(file, []byte(secret)) || bytes.Contains(mirrored.Bytes(), []byte(secret)) {
			t.Errorf("%s stands in the log", secret)
		}
		secret = "sk-rotated-secret"
	}
	if _, err := Verify(dir); err != nil {
		t.Error(err)
	}
}
