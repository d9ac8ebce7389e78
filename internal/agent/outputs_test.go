// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

func readOf(id, path string) chatCall {
	b, _ := json.Marshal(map[string]string{"path": path})
	return chatCall{id, "read", string(b)}
}

// What a result leaves out can be read back, over a restart too, without a call of the tools; what is not
// kept is said to be gone.
func TestOutputsAreReadBack(t *testing.T) {
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		switch {
		case n == 1:
			return reply{calls: []chatCall{bash("c1", "cat big"), bash("c2", "cat big")}}
		case r.lastSaid().Role == "tool":
			return reply{text: "ok"}
		}
		return reply{calls: []chatCall{readOf("c1", "output:1.1.1"), readOf("c2", "output:9.9.9"), readOf("c3", "output:../x")}}
	})
	big := strings.Repeat("0123456789abcde\n", 6000) // fits one answer of read
	s := start(t, model, func(_ context.Context, st wire.Start, write func([]byte)) wire.Exited {
		if st.Tool == "read" {
			write([]byte("cannot read"))
			return wire.Exited{Cause: wire.Finished, Status: 1}
		}
		for rest := []byte(big); len(rest) > 0; rest = rest[min(len(rest), 999):] {
			write(rest[:min(len(rest), 999)])
		}
		return wire.Exited{Cause: wire.Finished}
	})
	s.switchTo(policy.ReadOnly)
	s.say("m1", "go")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.options.LogDir, "outputs", "1.1.7.part"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.switchTo(policy.ReadOnly)
	s.say("m2", "read it")
	results := all[eventlog.ToolResult](t, s.lawful(), eventlog.TypeToolResult)
	// Those that only read finish in any order.
	slices.SortFunc(results, func(a, b eventlog.ToolResult) int { return strings.Compare(a.CallID, b.CallID) })
	if got := results[0].Text; !strings.Contains(got, "output:1.1.1") || len(got) > keepOutput+200 {
		t.Errorf("the result has %d bytes: %.80q", len(got), got)
	}
	part := (&tool.Read{}).Part(big)
	if results[2].Text != part || results[2].IsError {
		t.Errorf("read back: %d bytes %.80q, want %d", len(results[2].Text), results[2].Text, len(part))
	}
	if !results[3].IsError || !strings.Contains(results[3].Text, "nothing is kept") {
		t.Errorf("an output that is not there: %+v", results[3])
	}
	if reads := s.ro.Starts()[2:]; len(reads) != 1 || !strings.Contains(reads[0].Arguments, "../x") {
		t.Errorf("the tools ran %+v, want the file with the odd name alone", reads)
	}
	if parts, _ := filepath.Glob(filepath.Join(s.options.LogDir, "outputs", "*.part")); len(parts) != 0 {
		t.Errorf("%v are left over", parts)
	}
}

// What is kept is bounded: of each call, and of all of them, the oldest go first.
func TestOutputsAreBounded(t *testing.T) {
	o := openOutputs(t.TempDir())
	block := bytes.Repeat([]byte("x"), maxOutput/2)
	for i := range maxOutputs/maxOutput + 3 {
		w := o.of(fmt.Sprintf("1.1.%d", i+1))
		for range 3 {
			if n, err := w.Write(block); n != len(block) || err != nil {
				t.Fatalf("Write() = %d, %v", n, err)
			}
		}
		if !w.keep() {
			t.Fatal("nothing was kept")
		}
		old := time.Now().Add(time.Duration(i-1000) * time.Second)
		if err := os.Chtimes(o.path(w.id), old, old); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if _, err := os.Stat(o.path("1.1.1")); err == nil || size > maxOutputs || size < maxOutputs-2*maxOutput {
		t.Errorf("%d bytes in %d files are kept, and the oldest: %v", size, len(entries), err)
	}
	last := entries[len(entries)-1].Name()
	b, err := os.ReadFile(o.path(last))
	if err != nil || !strings.HasSuffix(string(b), fmt.Sprintf("[… %d bytes more were not kept …]\n", maxOutput/2)) {
		t.Errorf("%s ends with %q, %v", last, b[len(b)-60:], err)
	}
	if o.of("2.1.1").keep() {
		t.Error("a call that wrote nothing has something to read back")
	}
}

// A directory that cannot be written costs the output and nothing else.
func TestOutputsThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "outputs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := openOutputs(dir).of("1.1.1")
	if n, err := w.Write([]byte("x")); n != 1 || err != nil || w.keep() {
		t.Errorf("Write() = %d, %v", n, err)
	}
}

// An edit is told the version that the model saw last, whatever the file is called, and also by another boot.
func TestAnEditIsToldWhatTheModelSaw(t *testing.T) {
	edit := func(path string) chatCall {
		return chatCall{"c1", "edit", fmt.Sprintf(`{"path":%q,"old_string":"a","new_string":"b"}`, path)}
	}
	calls := []chatCall{readOf("c1", "f"), edit("/workspace/./f"), edit("f"), edit("g"), readOf("c1", "f"), edit("f")}
	model := newEndpoint(t, func(_ int, r chatRequest) reply {
		if r.lastSaid().Role == "tool" {
			return reply{text: "ok"}
		}
		c := calls[0]
		calls = calls[1:]
		return reply{calls: []chatCall{c}}
	})
	version := func(n int) string { return tool.VersionOf(fmt.Sprint(n)) }
	n := 0
	s := start(t, model, func(_ context.Context, st wire.Start, write func([]byte)) wire.Exited {
		n++
		write([]byte(tool.WithVersion("said", version(n))))
		return wire.Exited{Cause: wire.Finished, Status: n / 5 % 2} // the fifth fails
	})
	s.switchTo(policy.WorkspaceWrite)
	s.say("m1", "read f")
	s.say("m2", "edit f")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.switchTo(policy.WorkspaceWrite)
	for _, uid := range []string{"m3", "m4", "m5", "m6"} {
		s.say(uid, "go on")
	}
	var got []string
	for _, st := range s.rw.Starts() {
		got = append(got, st.Version)
	}
	want := []string{tool.AnyVersion, version(1), version(2), tool.AnyVersion, tool.AnyVersion, version(3)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	for _, r := range all[eventlog.ToolResult](t, s.lawful(), eventlog.TypeToolResult) {
		if r.Text != "said" {
			t.Errorf("the model reads %q", r.Text)
		}
	}
}

// Only so many versions are remembered, those that were seen last.
func TestVersionsAreBounded(t *testing.T) {
	var f files
	for i := range maxFiles + 10 {
		f.see(uint64(i), &eventlog.FileVersion{Path: fmt.Sprint(i % (maxFiles + 5)), Version: "v"})
	}
	if _, ok := f["9"]; ok || len(f) != maxFiles || f["0"].seq == 0 {
		t.Errorf("%d versions are remembered", len(f))
	}
}
