// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// stdout is a standard output that may be read.
type stdout struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *stdout) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *stdout) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The key reaches neither the log nor standard output, however the endpoint repeats it: in an answer, cut
// in two, in a call, in a refusal, and also after another one took its place.
func TestTheKeyIsKeptOutOfTheLog(t *testing.T) {
	const old, next = "sk-old-0123456789abcdef", "sk-new-fedcba9876543210"
	var s *session
	var out stdout
	model := newEndpoint(t, func(n int, _ chatRequest) reply {
		switch n {
		case 1:
			return reply{text: "it is " + old, calls: []chatCall{bash("c1", "echo "+old)}}
		case 2:
			replaceKey(t, s.options.KeyFile, next) // while the answer is under way
			return reply{text: "now: " + old[:9], parts: []string{old[9:] + ", " + next[:3], next[3:12], next[12:] + ". sk-"}}
		case 3:
			return reply{status: http.StatusUnauthorized, said: "not good: " + old + " " + next}
		case 4: // an answer that breaks off in the middle of the key
			return reply{text: "ok", parts: []string{" sk-new-fedcba98"}, cut: true}
		}
		return reply{text: "ok"}
	})
	s = start(t, model, func(_ context.Context, st wire.Start, write func([]byte)) wire.Exited {
		write([]byte(st.Arguments))
		return wire.Exited{Cause: wire.Finished}
	}, func(s *session) {
		s.options.Stdout = &out
		replaceKey(t, s.options.KeyFile, old)
	})
	s.switchTo(policy.ReadOnly)
	s.say("m1", "what is the key?")
	got := s.say("m2", "and now?")
	if got.Reason != ReasonModelFailed || !strings.Contains(got.Reply, "not good: [") {
		t.Errorf("the refusal reads %+v", got)
	}
	s.say("m3", "go on")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	shown := out.String()
	for _, e := range s.events() {
		for _, secret := range []string{old, next} {
			if bytes.Contains(e.Data, []byte(secret)) || strings.Contains(shown, secret) {
				t.Fatalf("event %d or standard output holds the key: %s", e.Seq, e.Data)
			}
		}
	}
	for _, want := range []string{`{"delta":{"content":"now: "}}`, `{"delta":{"content":"[redacted], "}}`, `{"delta":{"content":"[redacted]. "}}`, `{"delta":{"content":"sk-"}}`} {
		if !strings.Contains(shown, want) {
			t.Errorf("standard output does not show %s:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "sk-new-fedcba98") {
		t.Error("standard output shows the most of a key")
	}
	if starts := s.ro.Starts(); len(starts) != 1 || strings.Contains(starts[0].Arguments, old) {
		t.Errorf("what ran is not what the log says: %+v", starts)
	}
	for i, r := range model.seen() {
		if bytes.Contains(r.raw, []byte(old)) {
			t.Errorf("request %d carries the key", i+1)
		}
	}
	s.lawful()
}

// replaceKey puts a new file in the place of the old one, as the kubelet does.
func replaceKey(t *testing.T, path, key string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A workspace that fills the volume that it shares with the log stops neither the log nor the session,
// and an agent that is killed with its reserve leaves nothing of it behind.
func TestAFullWorkspaceDoesNotStopTheLog(t *testing.T) {
	volume := t.TempDir()
	if err := unix.Mount("none", volume, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("mounting a small volume (root?): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(volume, 0); err != nil {
			t.Error(err)
		}
	})
	model := newEndpoint(t, once(bash("c1", "ls")))
	s := start(t, model, echo("no space left\n", 1), func(s *session) { s.options.LogDir = filepath.Join(volume, "log") })
	s.switchTo(policy.WorkspaceWrite)
	f, err := os.Create(filepath.Join(volume, "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if closeErr := f.Close(); !errors.Is(err, unix.ENOSPC) || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	for i := range 20 {
		if got := s.say(string(rune('a'+i)), strings.Repeat("fill ", 1000)); got.Reason != ReasonCompleted {
			t.Fatalf("message %d on the full volume is %+v", i, got)
		}
	}
	s.switchTo(policy.ReadOnly)
	if got := s.log.Reserved(); got < logReserve/2 || got >= logReserve {
		t.Errorf("%d bytes are left of the reserve", got)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Verify(s.options.LogDir); err != nil {
		t.Error(err)
	}
}
