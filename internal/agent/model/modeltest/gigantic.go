// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// maxHeap is what a gigantic answer may cost beside what there was: the bounds of
// an answer several times over, for garbage, and far less than what is streamed.
const maxHeap = 96 << 20

// An answer without an end, or far beyond what a model says, ends in an error
// that says so; what it costs in memory is bounded meanwhile.
func testGigantic(t *testing.T, w Wire) {
	const k64 = 64 << 10
	big := strings.Repeat("x", k64)
	whole := w.Stream(model.Answer{Content: "ok", Finish: model.FinishStop})
	for name, next := range map[string]func(i int) string{
		"text without end":     func(int) string { return w.Text(big) },
		"comments without end": func(int) string { return ": " + strings.Repeat(big, 16) + "\n\n" },
		"a line without end":   func(int) string { return "data: " + big },
		"an event without end": func(int) string { return "data: " + big + "\n" },
		"arguments of 10 MB":   arguments(w, strings.Repeat("y", 1000), 10_000),
		"arguments in one piece of 10 MB": func(int) string {
			return strings.Join(w.Call("c", strings.Repeat("z", 10_000_000)), "") // more than fits an event, too
		},
		"calls without end": func(i int) string { return strings.Join(w.Call(fmt.Sprint("c", i), `{}`), "") },
	} {
		t.Run(name, func(t *testing.T) {
			var peak atomic.Uint64
			start := heap()
			s := Serve(t, func(rw http.ResponseWriter, r *http.Request) {
				Pieces(whole[0])(rw, r)
				for i := 0; r.Context().Err() == nil; i++ {
					if _, err := io.WriteString(rw, next(i)); err != nil {
						return
					}
					if i%16 == 0 {
						rw.(http.Flusher).Flush()
						peak.Store(max(peak.Load(), heap()))
					}
				}
			})
			p := w.New(t, Config{BaseURL: s.URL})
			e := WantError(t, Collect(t.Context(), p, mustPrepare(t, p, Request())), model.TooLarge)
			if e.Retryable() {
				t.Errorf("error %v: the same request would do the same again", e)
			}
			if used := peak.Load(); used > start+maxHeap {
				t.Errorf("the heap grew from %d to %d MiB", start>>20, used>>20)
			}
		})
	}
}

// arguments streams a call in pieces: its opening once, and the pieces behind it.
func arguments(w Wire, piece string, n int) func(i int) string {
	pieces := w.Call("c", slices.Repeat([]string{piece}, n)...)
	return func(i int) string {
		if i < len(pieces) {
			return pieces[i]
		}
		return ": over\n\n"
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
