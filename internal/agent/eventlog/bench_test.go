// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"strings"
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

func BenchmarkAppendSync(b *testing.B) {
	l, _ := benchLog(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.AppendSync(TypeStepEnd, StepEnd{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen recovers a log of 100,000 events.
func BenchmarkOpen(b *testing.B) {
	l, dir := benchLog(b)
	data := ToolResult{CallID: "c", Text: strings.Repeat("x", 200)}
	for range 100_000 {
		if _, err := l.Append(TypeToolResult, data); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
	b.ReportAllocs()
	for b.Loop() {
		l, _, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}
