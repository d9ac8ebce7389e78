// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// removed stands where a key stood.
const removed = "[key removed]"

// shortestSecret keeps a one-letter key of a test from emptying a whole script.
const shortestSecret = 4

// recording is a script that grows.
type recording struct {
	path  string
	rules []*rule
}

// heard is what a real endpoint said, in the form of a script.
type heard struct {
	reply      reply
	unfinished bool     // no finish reason came
	failed     string   // the error that came within the stream
	losses     []string // what a replay will not say in the same way
}

func (h *heard) lose(format string, args ...any) {
	h.losses = append(h.losses, fmt.Sprintf(format, args...))
}

// prepareTarget says whether recordings go to a directory, which it makes.
func prepareTarget(to string) (dir bool, err error) {
	info, err := os.Stat(to)
	switch {
	case to == "":
		return false, errors.New("the target of the recording is missing; name a file or a directory")
	case err == nil && info.IsDir():
		return true, nil
	case err == nil:
		return false, fmt.Errorf("%s exists; record to another file, or to a directory", to)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("looking at the target of the recording: %w", err)
	case strings.HasSuffix(to, "/"):
		return true, os.MkdirAll(to, 0o700)
	}
	if _, err := os.Stat(filepath.Dir(to)); err != nil {
		return false, fmt.Errorf("the directory of %s: %w; make it first", to, err)
	}
	return false, nil
}

func (r *Recorder) keepSecret(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(key) >= shortestSecret && !slices.Contains(r.secrets, key) {
		r.secrets = append(r.secrets, key)
	}
}

// note adds an answer to its script. What the endpoint could not answer becomes
// a fault of the rule, so that a client that retried then retries in the replay.
func (r *Recorder) note(d dialect, rec Record, stream bool, h *hearing) error {
	if h.header == nil || errors.Is(h.err, errTooLong) || errors.Is(h.err, context.Canceled) || (h.err == nil && !h.ended) {
		return errors.New(h.trouble()) // not the endpoint's doing, or not known in full
	}
	f, p, losses, err := understand(d, stream, h)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := r.fileLocked(rec.Conversation)
	if err != nil {
		return err
	}
	switch to := file.rule(rec); {
	case to.Reply != nil:
		r.log.Warn("The same conversation came again; its first answer stands", "n", rec.N)
		return nil
	case f != nil:
		to.add(*f)
	default:
		to.Reply = p
	}
	for _, loss := range losses {
		r.log.Warn("The answer will not replay exactly", "n", rec.N, "loss", loss)
	}
	return file.write(r.secrets)
}

// understand makes a reply or a fault of an answer.
func understand(d dialect, stream bool, h *hearing) (*fault, *reply, []string, error) {
	kind := h.header.Get("Content-Type")
	switch {
	case h.status >= http.StatusBadRequest:
		return faultOf(h), nil, nil, nil
	case !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "text/event-stream"):
		return &fault{Kind: faultHTML}, nil, nil, nil
	case !stream && h.err != nil:
		return &fault{Kind: faultCut}, nil, nil, nil
	}
	var said *heard
	var err error
	events := eventData(h.body)
	if stream {
		said, err = d.readStream(events)
	} else {
		said, err = d.readWhole(h.body)
	}
	switch {
	case err != nil:
		return nil, nil, nil, fmt.Errorf("understanding the answer: %w", err)
	case said.failed != "":
		return &fault{Kind: faultStreamError, Message: said.failed}, nil, nil, nil
	case h.err != nil:
		return &fault{Kind: faultCut, After: new(len(events))}, nil, nil, nil
	case said.unfinished:
		return &fault{Kind: faultNoFinish}, nil, nil, nil
	}
	return nil, &said.reply, said.losses, nil
}

// faultOf is an error answer as a fault.
func faultOf(h *hearing) *fault {
	var in struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(h.body, &in) // what is no error of the format has no message
	f := &fault{Kind: faultStatus, Status: h.status, Message: in.Error.Message}
	if in.Error.Code != nil {
		f.Code = fmt.Sprint(in.Error.Code)
	}
	if seconds, err := strconv.Atoi(h.header.Get("Retry-After")); err == nil && seconds >= 0 {
		f.RetryAfter = &seconds
	}
	return f
}

// add counts a fault that repeats the last one.
func (r *rule) add(f fault) {
	if n := len(r.Faults); n > 0 {
		last := r.Faults[n-1]
		last.Times = 0
		if sameFault(last, f) {
			r.Faults[n-1].Times = max(1, r.Faults[n-1].Times) + 1
			return
		}
	}
	r.Faults = append(r.Faults, f)
}

func sameFault(a, b fault) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// fileLocked returns the script that a conversation is recorded in.
func (r *Recorder) fileLocked(conversation string) (*recording, error) {
	if !r.toDir {
		conversation = ""
	}
	if f := r.files[conversation]; f != nil {
		return f, nil
	}
	path := r.to
	for n := 1; r.toDir; n++ {
		path = filepath.Join(r.to, conversation+".yaml")
		if n > 1 {
			path = filepath.Join(r.to, fmt.Sprintf("%s-%d.yaml", conversation, n))
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("looking for an earlier recording: %w", err)
		}
	}
	r.files[conversation] = &recording{path: path}
	return r.files[conversation], nil
}

// rule finds the rule of a conversation, or begins one.
func (f *recording) rule(rec Record) *rule {
	for _, r := range f.rules {
		if r.When.Digest == rec.ConversationDigest {
			return r
		}
	}
	r := &rule{Name: fmt.Sprintf("request %d", rec.N), When: &when{Digest: rec.ConversationDigest}}
	f.rules = append(f.rules, r)
	return r
}

// write replaces the script as a whole, so that one that can be read is there at
// any time, and only with one that can be played.
func (f *recording) write(secrets []string) error {
	data, err := json.Marshal(map[string]any{"version": scriptVersion, "rules": f.rules})
	if err != nil {
		return fmt.Errorf("encoding the script: %w", err)
	}
	for _, s := range secrets {
		quoted, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("removing keys: %w", err)
		}
		data = bytes.ReplaceAll(data, quoted[1:len(quoted)-1], []byte(removed))
	}
	if data, err = yaml.JSONToYAML(data); err != nil {
		return fmt.Errorf("encoding the script: %w", err)
	}
	if _, err := Parse(data); err != nil {
		return fmt.Errorf("the recorded script would not play: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.path), ".recording-*")
	if err != nil {
		return fmt.Errorf("writing the script: %w", err)
	}
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), f.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the script: %w", err), os.Remove(temporary.Name()))
	}
	return nil
}
