// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/show.golden from what the code does now (the v1 segments are never rewritten)")

type payload struct {
	typ  Type
	data any
}

// payloads has one value of each event type, with every field set, in the order of the golden log.
var payloads = []payload{
	{TypeSessionStart, SessionStart{SessionUID: "7d1e", Namespace: "team", Name: "fix-build", Config: json.RawMessage(`{"prompt":"fix the build"}`)}},
	{TypeBoot, Boot{Boot: 1, PodUID: "0b5f", Incarnation: "i1", AgentVersion: "v0.1.0", Cut: &Cut{File: "f", Line: 3, Bytes: 17, Why: "w"}}},
	{TypePolicyApplied, PolicyApplied{Policy: "{\"mode\": \"read-only\"}", Digest: "d1", Stamp: json.RawMessage(`{"generation":1}`), Cause: CauseStart, Epoch: 1, Killed: 2}},
	{TypeContextSnapshot, ContextSnapshot{PolicySeq: 3, Text: "two\nlines", Clear: true}},
	{TypeMessageReceived, MessageReceived{UID: "m1", Author: "ann", Content: "hello <b>", Interrupt: true}},
	{TypeTurnStart, TurnStart{Turn: 1, MessageUID: "m1"}},
	{TypeUserMessage, UserMessage{Turn: 1, MessageUID: "m1", Author: "ann", Content: "hello \u2028 wörld"}},
	{TypeStepStart, StepStart{Turn: 1, Step: 1}},
	{TypeRequestHeader, RequestHeader{Provider: "OpenAIChat", Model: "m", Parameters: json.RawMessage(`{"maxTokens":100}`), System: "sys", Tools: json.RawMessage(`[]`)}},
	{TypeRequestSent, RequestSent{Turn: 1, Step: 1, Attempt: 1, Digest: "b1", Bytes: 512, HeaderSeq: 9, PolicySeq: 3, SnapshotSeq: 4}},
	{TypeAssistantMessage, AssistantMessage{Turn: 1, Step: 1, Content: "I will", Reasoning: "hm", ToolCalls: []ModelCall{{ID: "c1", Name: "bash", Arguments: `{"command": "ls"`}}, Finish: "tool_calls", Usage: Usage{Input: 10, CachedInput: 64, Output: 5, Reasoning: 2}}},
	{TypeToolCall, ToolCall{Turn: 1, Step: 1, CallID: "c1", Name: "bash", Arguments: `{"command":"ls"}`}},
	{TypeToolStart, ToolStart{CallID: "c1", PolicySeq: 3, ToldSeq: 3, Epoch: 1, Profile: json.RawMessage(`{"mode":"read-only"}`)}},
	{TypeToolResult, ToolResult{CallID: "c1", Text: "\x1b[31mred", IsError: true, Outcome: OutcomeKilled, Denial: json.RawMessage(`{"kind":"file"}`), Profile: json.RawMessage(`{"mode":"read-only"}`)}},
	{TypeStepEnd, StepEnd{Turn: 1, Step: 1}},
	{TypeTurnEnd, TurnEnd{Turn: 1, Reason: "stop", Message: "done"}},
	{"future/event", map[string]any{"kept": true}},
	{TypeSessionEnd, SessionEnd{Reason: "Stopped", Message: "asked to"}},
}

// later are the types that came after the first golden log. They have one of their own.
var later = []payload{
	{TypeAssistantMessage, AssistantMessage{Turn: 1, Step: 1, Reasoning: "hm", ReasoningState: json.RawMessage(`[{"type":"thinking","bytes":2,"signature":"s"}]`), Finish: "stop"}},
	{TypeRetry, Retry{Turn: 1, Step: 1, Attempt: 1, Reason: "ModelRateLimited", Message: "slow down", DelayMillis: 500}},
	{TypeLeaseExpired, LeaseExpired{Epoch: 2, Killed: 1}},
	{TypeLeaseRenewed, LeaseRenewed{Epoch: 3}},
	{TypeApprovalRequested, ApprovalRequested{ID: "a1", CallID: "1.1.1", Permissions: "workspace-write", Justification: "to fix it", Profile: json.RawMessage(`{"mode":"workspace-write"}`), ExpiresAt: time.Date(2026, 1, 2, 3, 14, 0, 0, time.UTC), PolicySeq: 3, Tool: "bash", Preview: "run\n| ls\n", Digest: "d1"}},
	{TypeApprovalDecided, ApprovalDecided{ID: "a1", Decision: DecisionGranted, By: "ann", Message: "once"}},
	{TypeGrantUsed, GrantUsed{ID: "a1", CallID: "1.1.1", Epoch: 3, Profile: json.RawMessage(`{"mode":"workspace-write"}`)}},
	{TypeToolStart, ToolStart{CallID: "1.1.1", PolicySeq: 3, ToldSeq: 3, Epoch: 3, Profile: json.RawMessage(`{"mode":"workspace-write"}`), Grant: "a1"}},
	{TypeCompaction, Compaction{UpTo: 7, Summary: "so far", Cut: []string{"1.1.1"}, Cause: "window", Usage: Usage{Input: 9, Output: 3}}},
}

const goldenHead = "e8483f283e0316ae1b236785ed0a467b30fb77f06afeb8337607eeb73babe23a"

// The segments of version 1 are read for ever: the chain, every payload, and a
// type that no version of this program knows. They are never rewritten.
func TestGoldenV1(t *testing.T) {
	report, err := Verify("testdata/v1")
	if err != nil {
		t.Fatalf("Verify() = %v", err)
	}
	if report.Events != uint64(len(payloads)) || report.Head.Digest != goldenHead || len(report.Segments) != 2 || report.Segments[0].Ignored == 0 {
		t.Errorf("Verify() = %+v, want %d events in 2 segments up to %s, with a stale line ignored", report, len(payloads), goldenHead)
	}
	wantPayloads(t, "testdata/v1", payloads)
}

// The types that came later are read for ever too.
func TestGoldenV1Later(t *testing.T) {
	if _, err := os.Stat("testdata/v1-later"); *update && errors.Is(err, fs.ErrNotExist) {
		writeLater(t, "testdata/v1-later")
	}
	wantPayloads(t, "testdata/v1-later", later)
	dir := t.TempDir()
	writeLater(t, dir)
	want, got := mustRead(t, segments(t, "testdata/v1-later")[0]), mustRead(t, segments(t, dir)[0])
	if !bytes.Equal(want, got) {
		t.Errorf("today's writer gives\n%s\nwant\n%s", got, want)
	}
}

func writeLater(t *testing.T, dir string) {
	t.Helper()
	o := testOptions()
	o.Rand = strings.NewReader("\x00\x01\x02\x03\x04\x05\x06\x07")
	l, _, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range later {
		if _, err := l.AppendSync(p.typ, p.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantPayloads(t *testing.T, dir string, payloads []payload) {
	t.Helper()
	i := 0
	for e, err := range Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		want := payloads[i]
		got := reflect.New(reflect.TypeOf(want.data))
		if err := e.Decode(got.Interface()); err != nil {
			t.Fatal(err)
		}
		if e.Type != want.typ || !reflect.DeepEqual(want.data, got.Elem().Interface()) {
			t.Errorf("event %d is %s %+v\nwant %s %+v", e.Seq, e.Type, got.Elem(), want.typ, want.data)
		}
		i++
	}
	if i != len(payloads) {
		t.Errorf("%d events, want %d", i, len(payloads))
	}
}

// Today's writer gives the golden bytes, so version 1 has not drifted.
func TestWriterGivesGoldenBytes(t *testing.T) {
	dir := t.TempDir()
	writeSample(t, dir)
	for _, golden := range segments(t, "testdata/v1") {
		got, err := os.ReadFile(filepath.Join(dir, filepath.Base(golden)))
		if err != nil {
			t.Fatal(err)
		}
		if want := mustRead(t, golden); !bytes.Equal(want, got) {
			t.Errorf("%s differs:\n%s\nwant\n%s", golden, got, want)
		}
	}
}

// writeSample writes the log that the golden one was made from: ten events, then
// a second boot and the rest, and a line by a stale writer in between.
func writeSample(t *testing.T, dir string) {
	t.Helper()
	o := testOptions()
	o.Rand = strings.NewReader("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f")
	var l *Log
	for i, p := range payloads {
		if i == 0 || i == 10 {
			if l != nil {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if l, _, err = Open(dir, o); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.AppendSync(p.typ, p.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(segments(t, dir)[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"seq":11,"stale":true}` + "\n"); err != nil {
		t.Fatal(err)
	}
}

// Every type with a payload struct has a summary, and Show prints it without
// letting its text steer a terminal.
func TestShow(t *testing.T) {
	var out bytes.Buffer
	if err := Show(&out, "testdata/v1", ShowOptions{Width: 60}); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/show.golden", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := mustRead(t, "testdata/show.golden"); !bytes.Equal(want, out.Bytes()) {
		t.Errorf("Show() printed\n%s\nwant\n%s", &out, want)
	}
	if bytes.ContainsRune(out.Bytes(), '\x1b') {
		t.Error("an escape sequence got through")
	}
	types := map[Type]bool{}
	for _, p := range append(slices.Clip(payloads), later...) {
		types[p.typ] = true
		if _, known := summaries[p.typ]; known == (p.typ == "future/event") {
			t.Errorf("type %s: summary %v", p.typ, known)
		}
	}
	if len(summaries) != len(types)-1 {
		t.Errorf("%d summaries for %d types", len(summaries), len(types)-1)
	}
}

// A wrong path is not an empty log.
func TestReadersWantADirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, verify := Verify(missing)
	for name, err := range map[string]error{
		"Verify": verify,
		"Show":   Show(&bytes.Buffer{}, missing, ShowOptions{}),
		"Export": Export(&bytes.Buffer{}, missing),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s() = %v, want the missing path named", name, err)
		}
	}
}
