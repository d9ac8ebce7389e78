// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// agree checks that the fast reading of a line is JSON's.
func agree(t interface{ Fatalf(string, ...any) }, line []byte) {
	got, ok := parseOwn(line, Genesis)
	if !ok {
		return
	}
	var want Event
	if err := json.Unmarshal(line, &want); err != nil {
		t.Fatalf("parseOwn accepts %q, and JSON says %v", line, err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("parseOwn reads %q as\n%+v\nJSON as\n%+v", line, got, want)
	}
}

// Every line that a log writes is read the fast way, with JSON's meaning.
func TestOwnLinesAreReadFast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(map[string]any{"text": rapid.String().Draw(t, "text"), "n": rapid.Float64().Draw(t, "n")})
		if err != nil {
			t.Fatal(err)
		}
		e := Event{
			Seq: rapid.Uint64Range(1, 1e18).Draw(t, "seq"), Time: time.Unix(rapid.Int64Range(0, 1e10).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
			Type: rapid.SampledFrom([]Type{TypeToolResult, "future/event"}).Draw(t, "type"), Data: data,
			Prev: rapid.SampledFrom([]string{Genesis, digestOf(data)}).Draw(t, "prev"),
		}
		e.Durable = rapid.Uint64Range(0, e.Seq-1).Draw(t, "durable")
		line := appendLine(nil, e)
		if _, ok := parseOwn(line, Genesis); !ok {
			t.Fatalf("%s is not read the fast way", line)
		}
		agree(t, line)
		if got, err := parseLine(line, Genesis); err != nil || !reflect.DeepEqual(e, got) {
			t.Fatalf("parseLine() = %+v, %v, want %+v", got, err, e)
		}
	})
}

// FuzzParseOwn compares the fast reading with JSON's on whatever bytes.
func FuzzParseOwn(f *testing.F) {
	content, err := os.ReadFile("testdata/v1/00000001-0b5f3c9e-pod-0001020304050607.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		f.Add(bytes.TrimSpace(line))
	}
	tail := `,"durable":0,"prev":"` + Genesis + `"}`
	for _, line := range []string{
		`{"seq":1,"time":"2026-01-02T03:04:05Z","type":"t","data":{}` + tail, `{"seq":01,"time":"2026-01-02T03:04:05Z","type":"t","data":{}` + tail,
		`{"seq":1,"time":"2026-01-02T03:04:05+01:00","type":"t","data":{},"data":{"a":1}` + tail, `{"seq":18446744073709551616,"time":"2026-01-02T03:04:05Z","type":"t","data":{}` + tail,
		`{"seq":1,"time":"2026-01-02","type":"t","data":{}` + tail, `{"seq":1,"time":"2026-01-02T03:04:05Z","type":"\\u0074","data":{"x":"},"` + tail,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) { agree(t, line) })
}
