// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
)

// Report is what Verify found in a directory whose chain holds.
type Report struct {
	Segments []SegmentReport
	Events   uint64
	Head     Head
	// Durable is the seq below which damage would have been an error.
	Durable uint64
	// Cut is the torn tail that the next Open will drop; in a log that is being
	// written it may be a line that is not complete yet.
	Cut *Cut
}

// SegmentReport is one file. First and Last are 0 when it adds no event.
type SegmentReport struct {
	Name        string
	Boot        int
	PodUID      string
	First, Last uint64
	// Ignored counts bytes outside the chain: a torn tail that a later boot cut,
	// or lines that a stale writer added.
	Ignored int64
}

// planExisting is planChain for readers: they must not take a wrong path for an
// empty log.
func planExisting(dir string) (*chain, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	return planChain(dir)
}

// Verify reads the whole log and checks the chain. It changes nothing and takes
// no lock, so it may be run beside a living agent.
func Verify(dir string) (Report, error) {
	c, err := planExisting(dir)
	if err != nil {
		return Report{}, err
	}
	if err := c.walk(nil); err != nil {
		return Report{}, err
	}
	r := Report{Events: c.head.Seq, Head: c.head, Durable: c.durable, Cut: c.cut}
	for _, p := range c.parts {
		r.Segments = append(r.Segments, SegmentReport{
			Name: p.name, Boot: p.boot, PodUID: p.header.PodUID, First: p.first, Last: p.last, Ignored: p.ignored,
		})
	}
	return r, nil
}

// WriteTo prints the report for people.
func (r Report) WriteTo(w io.Writer) (int64, error) {
	var b []byte
	for _, s := range r.Segments {
		events := "no events"
		if s.Last > 0 {
			events = fmt.Sprintf("events %d to %d", s.First, s.Last)
		}
		b = fmt.Appendf(b, "%s: boot %d, %s", s.Name, s.Boot, events)
		if s.Ignored > 0 {
			b = fmt.Appendf(b, ", %d bytes outside the chain", s.Ignored)
		}
		b = append(b, '\n')
	}
	if r.Cut != nil {
		b = fmt.Appendf(b, "torn tail: %s line %d, %d bytes: %s\n", r.Cut.File, r.Cut.Line, r.Cut.Bytes, r.Cut.Why)
	}
	b = fmt.Appendf(b, "%d events, head %s, known durable up to %d: the chain holds\n", r.Events, r.Head.Digest, r.Durable)
	n, err := w.Write(b)
	return int64(n), err
}

// Read yields the events of the log in dir without opening it for writing.
func Read(dir string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c, err := planExisting(dir)
		if err != nil {
			yield(Event{}, err)
			return
		}
		c.each(yield)
	}
}

// Export writes the lines of the chain, byte for byte, and nothing else. On
// damage it has written what comes before it.
func Export(w io.Writer, dir string) error {
	c, err := planExisting(dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	var writeErr error
	err = c.walk(func(_ Event, line []byte) bool {
		if _, writeErr = out.Write(line); writeErr == nil {
			writeErr = out.WriteByte('\n')
		}
		return writeErr == nil
	})
	if flushErr := out.Flush(); writeErr == nil {
		writeErr = flushErr
	}
	if writeErr != nil {
		return fmt.Errorf("writing the exported log: %w", writeErr)
	}
	return err
}
