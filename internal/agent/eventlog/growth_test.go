// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"runtime"
	"strings"
	"testing"
)

// counting counts what reaches the file.
type counting struct {
	sink
	bytes, writes int
}

func (c *counting) Write(b []byte) (int, error) {
	c.bytes += len(b)
	c.writes++
	return c.sink.Write(b)
}

// An append does the same work at the end of a long log as at the start of a short
// one: one write of one line, and no more memory for it.
func TestAppendDoesNotGrowWithTheLog(t *testing.T) {
	c := &counting{}
	o := Options{wrap: func(s sink) sink { c.sink = s; return c }}
	l, _, err := Open(memoryDir(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data := ToolResult{CallID: "c", Text: strings.Repeat("x", 200)}
	measure := func() (allocs float64, bytes, writes int) {
		const runs = 200
		c.bytes, c.writes = 0, 0
		allocs = testing.AllocsPerRun(runs, func() {
			if _, err := l.Append(TypeToolResult, data); err != nil {
				t.Fatal(err)
			}
		})
		return allocs, c.bytes / (runs + 1), c.writes
	}
	measure() // fills the scratch buffers
	allocs, bytes, writes := measure()
	for range 50_000 {
		if _, err := l.Append(TypeToolResult, data); err != nil {
			t.Fatal(err)
		}
	}
	laterAllocs, laterBytes, laterWrites := measure()
	// One more is a pool that was emptied, which the race detector does at random.
	if laterAllocs > allocs+1 || laterWrites != writes || laterBytes > bytes+10 { // longer numbers
		t.Errorf("at first %v allocations, %d bytes, %d writes; after 50,000 events %v, %d, %d",
			allocs, bytes, writes, laterAllocs, laterBytes, laterWrites)
	}
}

// Opening and reading a log holds a line at a time: a log a hundred times longer
// takes no more memory.
func TestMemoryDoesNotGrowWithTheLog(t *testing.T) {
	held := func(events int) uint64 {
		dir := memoryDir(t)
		l, _, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		data := ToolResult{CallID: "c", Text: strings.Repeat("x", 500)}
		for range events {
			if _, err := l.Append(TypeToolResult, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		before := live()
		if l, _, err = Open(dir, Options{}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		n, most := 0, uint64(0)
		for _, err := range l.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(events/10) == 0 {
				most = max(most, live())
			}
		}
		if n != events {
			t.Fatalf("%d events, want %d", n, events)
		}
		return most - min(before, most)
	}
	short, long := held(300), held(30_000) // the long one is 20 MB
	if long > short+1<<20 {
		t.Errorf("reading 300 events holds %d bytes, 30,000 hold %d", short, long)
	}
}

// live is what is reachable.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
