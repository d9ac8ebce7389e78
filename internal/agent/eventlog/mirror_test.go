// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// stuckWriter takes writes only while it is open.
type stuckWriter struct {
	mu   sync.Mutex
	gate chan struct{}
	got  strings.Builder
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.gate
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.Write(b)
}

// A stuck reader costs lines, in the middle, and a marker counts them; the log
// that feeds the mirror goes on.
func TestMirrorDropsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{gate: make(chan struct{})}
		m := NewMirror(w, 40)
		for i := range 10 {
			m.Line(fmt.Appendf(nil, "line %04d", i)) // 10 bytes with the newline
			synctest.Wait()
		}
		close(w.gate)
		synctest.Wait()
		m.Line([]byte("after"))
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "line 0000\nline 0001\nline 0002\nline 0003\n{\"dropped\":6}\nafter\n"
		if w.got.String() != want {
			t.Errorf("mirrored\n%swant\n%s", w.got.String(), want)
		}
		m.Line([]byte("late")) // neither panics nor blocks
	})
}

// A line over the bound passes when nothing waits, so no event is unseen for its size alone.
func TestMirrorPassesALongLine(t *testing.T) {
	var out strings.Builder
	m := NewMirror(&out, 4)
	m.Line([]byte("much longer"))
	if err := m.Close(t.Context()); err != nil || out.String() != "much longer\n" {
		t.Errorf("mirrored %q, %v", out.String(), err)
	}
}

// Close does not wait for ever for a reader that never reads.
func TestMirrorCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{gate: make(chan struct{})}
		m := NewMirror(w, 100)
		m.Line([]byte("x"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close() = %v, want the context's error", err)
		}
		close(w.gate)
	})
}

// A writer that fails ends the mirror and nothing else.
func TestMirrorSurvivesABrokenWriter(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	m := NewMirror(w, 100)
	m.Line([]byte("x"))
	m.Line([]byte("y"))
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What the mirror shows is on disk: nothing is shown of what no sync has covered.
func TestMirrorFollowsTheDisk(t *testing.T) {
	var shown []string
	o := testOptions()
	o.Mirror = func(line []byte) { shown = append(shown, string(line)) }
	l, _, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		if _, err := l.Append(TypeStepEnd, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(shown) != 0 {
		t.Errorf("%d lines are shown before they are on disk", len(shown))
	}
	if err := l.Sync(); err != nil || len(shown) != 2 {
		t.Errorf("%d lines are shown when they are, want 2: %v", len(shown), err)
	}
}
