// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/agentsession-dev/operator/internal/agent/runtimecontext"
	"github.com/agentsession-dev/operator/internal/tool"
)

const (
	maxOutput  = 4 << 20  // bytes that are kept of one call
	maxOutputs = 64 << 20 // bytes that are kept of all; the oldest go first
	// outputPrefix is what the name of a kept output begins with, where the tool read takes a path.
	outputPrefix = "output:"
)

var outputName = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`) // a call's

// outputs keeps beside the log what calls wrote, as a whole, where their results were cut. The log does not
// need it: what is lost here is said to be lost.
type outputs struct {
	dir string
	mu  sync.Mutex
}

// openOutputs drops what no call has finished.
func openOutputs(logDir string) *outputs {
	o := &outputs{dir: filepath.Join(logDir, "outputs")}
	unfinished, _ := filepath.Glob(filepath.Join(o.dir, "*.part"))
	for _, path := range unfinished {
		_ = os.Remove(path)
	}
	return o
}

func (o *outputs) path(id string) string { return filepath.Join(o.dir, id) }

// output is what one call writes.
type output struct {
	o  *outputs
	id string

	mu     sync.Mutex
	file   *os.File
	size   int64 // written to the file
	total  int64
	err    error
	closed bool
}

func (o *outputs) of(id string) *output { return &output{o: o, id: id} }

// Write never fails: what cannot be kept is lost.
func (w *output) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(p), nil
	}
	if w.file == nil && w.err == nil {
		w.err = os.MkdirAll(w.o.dir, 0o700)
	}
	if w.file == nil && w.err == nil {
		w.file, w.err = os.OpenFile(w.o.path(w.id+".part"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	w.total += int64(len(p))
	if room := maxOutput - w.size; w.err == nil && room > 0 {
		var n int
		n, w.err = w.file.Write(p[:min(int64(len(p)), room)])
		w.size += int64(n)
	}
	return len(p), nil
}

// keep reports whether there is something that can be read back, also by the next boot.
func (w *output) keep() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file == nil {
		return false
	}
	if w.err == nil && w.total > w.size {
		_, w.err = fmt.Fprintf(w.file, "\n[… %d bytes more were not kept …]\n", w.total-w.size)
	}
	part := w.o.path(w.id + ".part")
	err := errors.Join(w.err, w.file.Sync(), w.file.Close())
	if err == nil {
		err = os.Rename(part, w.o.path(w.id))
	}
	if err != nil {
		_ = os.Remove(part)
		return false
	}
	w.o.prune()
	return true
}

// prune removes the oldest until the rest is few enough.
func (o *outputs) prune() {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return
	}
	var kept []os.FileInfo
	var size int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && outputName.MatchString(e.Name()) {
			kept, size = append(kept, info), size+info.Size()
		}
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, info := range kept {
		if size <= maxOutputs {
			return
		}
		if os.Remove(o.path(info.Name())) == nil {
			size -= info.Size()
		}
	}
}

// readBack answers a call of read that names a kept output; ok is false for any other call.
func (o *outputs) readBack(c tool.Call) (text string, found, ok bool) {
	r, isRead := c.Arguments.(*tool.Read)
	if !isRead {
		return "", false, false
	}
	id, named := strings.CutPrefix(r.Path, outputPrefix)
	if !named || !outputName.MatchString(id) {
		return "", false, false
	}
	b, err := os.ReadFile(o.path(id))
	if err != nil {
		return fmt.Sprintf("cannot read %s: nothing is kept of that call's output. What is too old or was not cut is not kept.", r.Path), false, true
	}
	return runtimecontext.ResultText(r.Part(strings.ToValidUTF8(string(b), "\uFFFD"))), true, true
}
