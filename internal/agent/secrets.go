// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
)

// keptKeys is how many keys are remembered: one that was rotated away may still be good for
// something.
const keptKeys = 32

// maxKeyFile is how much of the key's file is read.
const maxKeyFile = 64 << 10

// secrets are the texts that must not get into the log or out on standard output: every key that
// the model's key file has held in this boot.
type secrets struct {
	path string

	mu    sync.Mutex
	from  keyFile
	known []string
}

// keyFile tells whether another file is there than the last time. The kubelet puts a new one in
// the place of the old one.
type keyFile struct {
	size    int64
	changed time.Time
	inode   os.FileInfo
}

func (f keyFile) same(info os.FileInfo) bool {
	return f.inode != nil && os.SameFile(f.inode, info) && f.size == info.Size() && f.changed.Equal(info.ModTime())
}

// texts are the secrets as they are now.
func (s *secrets) texts() []string {
	info, err := os.Stat(s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !s.from.same(info) {
		if key, err := readKey(s.path); err == nil {
			s.from = keyFile{info.Size(), info.ModTime(), info}
			s.addLocked(key)
		}
	}
	return s.known
}

// add takes a key that is about to be used.
func (s *secrets) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(key)
}

func (s *secrets) addLocked(key string) {
	if key == "" || slices.Contains(s.known, key) {
		return
	}
	s.known = append(slices.Clone(s.known[max(0, len(s.known)+1-keptKeys):]), key) // others may hold the old one
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	return strings.TrimSpace(string(b)), err
}

// live shows an answer on standard output as it comes, without secrets.
type live struct {
	mirror             *eventlog.Mirror
	secrets            *secrets
	content, reasoning eventlog.Stream
}

type liveDelta struct {
	Content   string `json:"content,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
}

func (l *live) show(d model.Delta) {
	if d.Content == "" && d.Reasoning == "" {
		return
	}
	secrets := l.secrets.texts()
	l.line(liveDelta{Content: l.content.Add(d.Content, secrets), Reasoning: l.reasoning.Add(d.Reasoning, secrets)})
}

// end shows what was held back because a secret might have begun there.
func (l *live) end() {
	secrets := l.secrets.texts()
	l.line(liveDelta{Content: l.content.End(secrets), Reasoning: l.reasoning.End(secrets)})
}

func (l *live) line(d liveDelta) {
	if d == (liveDelta{}) {
		return
	}
	if line, err := json.Marshal(map[string]liveDelta{"delta": d}); err == nil {
		l.mirror.Line(line)
	}
}
