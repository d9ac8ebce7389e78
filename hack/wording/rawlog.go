// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// formatVersion is the version of the raw log.
const formatVersion = 1

// Header is the first line of a raw log: everything that was decided before the first session.
type Header struct {
	Version  int      `json:"version"`
	Evidence bool     `json:"evidence"` // false: the model is a script of ours
	Endpoint Endpoint `json:"endpoint"`
	N        int      `json:"n"` // valid sessions of each arm
	Seed     uint64   `json:"seed"`
	Rules    Rules    `json:"rules"`
	Arms     []Arm    `json:"arms"`
	Tasks    []Task   `json:"tasks"`
	// Policy is what every session stands under, Tools a digest of what the model is told of the
	// tools, Sentences of how results are worded; they are the same for all arms.
	Policy string `json:"policy"`
	Tools  string `json:"tools"`
	Order  []Slot `json:"order"`
}

// line is one line of a raw log; one of its fields is set.
type line struct {
	Header  *Header  `json:"header,omitempty"`
	Started *Started `json:"started,omitempty"`
	Session *Session `json:"session,omitempty"`
	Gate    *Gate    `json:"gate,omitempty"`
	Stopped string   `json:"stopped,omitempty"` // why a run ended before its end
	Torn    int      `json:"torn,omitempty"`    // bytes of a line that a crash had cut
}

// Started is written whenever a run begins or goes on.
type Started struct {
	Time string `json:"time"`
	Host string `json:"host"`
}

// rawLog is an open raw log. Lines are only ever added.
type rawLog struct {
	file   *os.File
	secret []byte
	lines  []line
}

// openLog creates a raw log with its header on the disk, or opens one that has the same header.
func openLog(name string, h Header, secret []byte) (_ *rawLog, err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	l := &rawLog{file: f, secret: bytes.TrimSpace(secret)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another run writes %s: %w", name, err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		return l, l.add(line{Header: &h})
	}
	return l, l.resume(name, content, h)
}

// resume takes up what is there. A line that a crash cut is taken off, and that is written down.
func (l *rawLog) resume(name string, content []byte, h Header) error {
	whole := bytes.LastIndexByte(content, '\n') + 1
	want, err := l.encode(line{Header: &h})
	if err != nil {
		return err
	}
	if first, _, _ := bytes.Cut(content, []byte("\n")); !bytes.Equal(append(first, '\n'), want) {
		return fmt.Errorf("%s was begun by another plan: its first line differs from that of this run (arms, wording, tools, n, seed, endpoint or rules). "+
			"Name another file, or repeat the run exactly", name)
	}
	if l.lines, err = parseLines(content[:whole]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if torn := len(content) - whole; torn > 0 {
		if err := l.file.Truncate(int64(whole)); err != nil {
			return err
		}
		return l.add(line{Torn: torn})
	}
	return nil
}

func parseLines(content []byte) (lines []line, err error) {
	for b := range bytes.Lines(content) {
		var one line
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, one)
	}
	if len(lines) == 0 || lines[0].Header == nil {
		return nil, errors.New("the first line is no header")
	}
	if v := lines[0].Header.Version; v != formatVersion {
		return nil, fmt.Errorf("version %d is not known here, only %d", v, formatVersion)
	}
	return lines, nil
}

func (l *rawLog) encode(one line) ([]byte, error) {
	b, err := json.Marshal(one)
	if err != nil {
		return nil, err
	}
	if len(l.secret) > 0 {
		b = bytes.ReplaceAll(b, l.secret, []byte("[the key]"))
	}
	return append(b, '\n'), nil
}

// add writes a line and waits until it is on the disk.
func (l *rawLog) add(one line) error {
	b, err := l.encode(one)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(b); err != nil {
		return fmt.Errorf("writing the raw log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("writing the raw log: %w", err)
	}
	l.lines = append(l.lines, one)
	return nil
}

func (l *rawLog) close() error { return l.file.Close() }

func sessionsOf(lines []line) (all []Session) {
	for _, l := range lines {
		if l.Session != nil {
			all = append(all, *l.Session)
		}
	}
	return all
}
