// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func benchLog(b *testing.B) (*Log, string) {
	b.Helper()
	dir := b.TempDir()
	l, _, err := Open(dir, Options{PodUID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l, dir
}

// BenchmarkAppend is an event in the file, BenchmarkAppendSync one on the disk.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, _ := benchLog(b)
			data := ToolResult{CallID: "c", Text: strings.Repeat("x", size)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(TypeToolResult, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendSync shares an fsync between those who wait: the fsyncs of an event
// are printed beside its time.
func BenchmarkAppendSync(b *testing.B) {
	for _, waiters := range []int{1, 8} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			syncs := 0
			l, _, err := Open(b.TempDir(), Options{wrap: func(s sink) sink { return &hooked{s, func() { syncs++ }} }})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { l.Close() })
			b.ReportAllocs()
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := l.AppendSync(TypeStepEnd, StepEnd{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(syncs)/float64(b.N), "fsyncs/op")
		})
	}
}

// BenchmarkOpen recovers a log of 100,000 events, alone and with a reader of them.
func BenchmarkOpen(b *testing.B) {
	l, dir := benchLog(b)
	data := ToolResult{CallID: "c", Text: strings.Repeat("x", 200)}
	for range 100_000 {
		if _, err := l.Append(TypeToolResult, data); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
	for name, each := range map[string]func(Event) error{"verify": nil, "each": func(Event) error { return nil }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, _, err := Open(dir, Options{Each: each})
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
}
