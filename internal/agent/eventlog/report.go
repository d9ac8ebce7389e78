// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"errors"
	"io"
	"iter"
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

// Verify reads the whole log and checks the chain. It changes nothing and takes
// no lock, so it may be run beside a living agent.
func Verify(dir string) (Report, error) { return Report{}, errors.ErrUnsupported }

// Read yields the events of the log in dir without opening it for writing.
func Read(dir string) iter.Seq2[Event, error] { return func(func(Event, error) bool) {} }

// ShowOptions choose what Show prints.
type ShowOptions struct {
	// From is the first seq shown.
	From uint64
	// Width cuts long texts to about so many characters; 0 is not at all.
	Width int
}

// Show prints the log for people: a line or a small block for each event.
func Show(w io.Writer, dir string, o ShowOptions) error { return errors.ErrUnsupported }

// Export writes the lines of the chain, byte for byte, and nothing else.
func Export(w io.Writer, dir string) error { return errors.ErrUnsupported }
