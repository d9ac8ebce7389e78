// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Progress writes lines for a person who waits.
type Progress struct {
	mu sync.Mutex
	w  io.Writer
}

// NewProgress writes to w.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w} }

// Line writes one line.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Step is a program that is being built.
type Step struct {
	progress *Progress
	label    string
	began    time.Time
	stop     chan struct{}
	ended    sync.WaitGroup

	mu       sync.Mutex
	compiled int
	last     string
}

// Step announces the building of something.
func (p *Progress) Step(n, of int, what string) *Step {
	s := &Step{progress: p, label: fmt.Sprintf("[%d/%d] building %s ...", n, of, what), began: time.Now(), stop: make(chan struct{})}
	s.ended.Go(s.tick)
	return s
}

const sign = 10 * time.Second // between signs of life

func (s *Step) tick() {
	t := time.NewTicker(sign)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.show()
		}
	}
}

func (s *Step) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == "" { // all of it was compiled before
		s.progress.Line("%s %s, linking", s.label, s.age())
		return
	}
	s.progress.Line("%s %s, %d packages compiled, last: %s", s.label, s.age(), s.compiled, s.last)
}

var packagePath = regexp.MustCompile(`^[\w.~-]+(/[\w.~-]+)*$`)

// Saw takes a line that go build wrote, and reports whether it tells progress:
// with -v it names each package that it compiles, and each module it downloads.
func (s *Step) Saw(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if module, ok := strings.CutPrefix(line, "go: downloading "); ok {
		s.last = "download " + module
		return true
	}
	if !packagePath.MatchString(line) {
		return false
	}
	s.compiled++
	s.last = line
	return true
}

// End ends the step, and says how long it took if it was done.
func (s *Step) End(done bool) {
	close(s.stop)
	s.ended.Wait()
	if done {
		s.progress.Line("%s %s", s.label, s.age())
	}
}

func (s *Step) age() time.Duration { return time.Since(s.began).Round(time.Second) }
