// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// part is a segment's place in the chain: the events behind its header, up to
// until. The last part of a log that is being recovered has no until: it goes as
// far as its lines are whole.
type part struct {
	segment
	until *Head
	// What the walk found.
	first, last uint64
	ignored     int64
}

// chain is a log as a list of parts, and what walking them showed.
type chain struct {
	dir   string
	parts []part
	boots int // highest boot number of any file, torn or not
	// durable is the highest seq that anything says was on disk.
	durable uint64
	head    Head
	cut     *Cut
}

// planChain decides which segments make up the log and where each ends. It reads
// headers only.
func planChain(dir string) (*chain, error) {
	all, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	c := &chain{dir: dir, head: Head{Digest: Genesis}}
	for _, s := range all {
		c.boots = max(c.boots, s.boot)
		c.durable = max(c.durable, s.header.Last.Seq)
		if s.torn || s.empty {
			continue
		}
		if n := len(c.parts); n > 0 {
			before := &c.parts[n-1]
			if before.boot == s.boot {
				return nil, &DamageError{File: s.path, Line: 1, Why: fmt.Sprintf("%s claims boot %d too", before.name, s.boot)}
			}
			before.until = &s.header.Last
		}
		c.parts = append(c.parts, part{segment: s})
	}
	return c, nil
}

// walk follows the chain from its start, checks every link, and hands each event
// with its line to visit, which may be nil and ends the walk with false. The line
// and the event's data, a part of it, are valid during the call only.
func (c *chain) walk(visit func(e Event, line []byte) bool) error {
	c.head = Head{Digest: Genesis}
	for i := range c.parts {
		p := &c.parts[i]
		if p.header.Last != c.head {
			return &DamageError{File: p.path, Line: 1, Why: fmt.Sprintf(
				"it goes on from event %d (%.12s), but the segments before it end with event %d (%.12s)",
				p.header.Last.Seq, p.header.Last.Digest, c.head.Seq, c.head.Digest)}
		}
		more, err := c.walkPart(p, visit)
		if err != nil || !more {
			return err
		}
	}
	if c.head.Seq < c.durable && (len(c.parts) == 0 || c.parts[len(c.parts)-1].until == nil) {
		return c.missing()
	}
	return nil
}

// missing is the damage of a log that ends, in good order, too early.
func (c *chain) missing() error {
	e := &DamageError{File: c.dir, Line: 1, Why: fmt.Sprintf("the log ends with event %d, but event %d was on disk", c.head.Seq, c.durable)}
	if n := len(c.parts); n > 0 {
		e.File, e.Line = c.parts[n-1].path, int(c.parts[n-1].last-c.parts[n-1].header.Last.Seq)+1
	}
	return e
}

func (c *chain) walkPart(p *part, visit func(Event, []byte) bool) (more bool, err error) {
	f, err := os.Open(p.path)
	if err != nil {
		return false, fmt.Errorf("opening log segment: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(p.headerLen, io.SeekStart); err != nil {
		return false, fmt.Errorf("reading log segment: %w", err)
	}
	s := &scanner{r: newLineReader(f), chain: c, part: p, line: 1}
	for p.until == nil || c.head.Seq < p.until.Seq {
		e, line, n, err := s.next()
		if errors.Is(err, io.EOF) && p.until == nil {
			return true, nil
		}
		if err != nil {
			return true, s.judge(n, err)
		}
		if visit != nil && !visit(e, line) {
			return false, nil
		}
	}
	if *p.until != c.head {
		return false, &DamageError{File: p.path, Line: s.line, Why: fmt.Sprintf(
			"a later segment goes on from event %d with the digest %.12s, but the line here has %.12s",
			p.until.Seq, p.until.Digest, c.head.Digest)}
	}
	p.ignored, err = io.Copy(io.Discard, s.r.r)
	return true, err
}

// scanner reads the events of one part and moves the chain's head along.
type scanner struct {
	r     *lineReader
	chain *chain
	part  *part
	line  int
	// suspect is the lowest seq that the flaw found may have damaged.
	suspect uint64
}

func (s *scanner) next() (Event, []byte, int64, error) {
	head := &s.chain.head
	line, n, err := s.r.next(MaxLine)
	s.line++
	s.suspect = head.Seq + 1
	if err != nil {
		return Event{}, nil, n, err
	}
	e, err := parseLine(line, head.Digest)
	if err != nil {
		return Event{}, nil, n, err
	}
	s.chain.durable = max(s.chain.durable, e.Durable)
	if e.Seq != head.Seq+1 {
		return Event{}, nil, n, fmt.Errorf("event %d stands where event %d belongs", e.Seq, head.Seq+1)
	}
	if e.Prev != head.Digest {
		// Either this line or the one before it is not what was written; a line in
		// another file is attested by this one's header.
		s.suspect = max(head.Seq, s.part.header.Last.Seq+1)
		return Event{}, nil, n, fmt.Errorf("event %d does not follow from the line before it (digest %.12s, not %.12s)",
			e.Seq, head.Digest, e.Prev)
	}
	*head = Head{Seq: e.Seq, Digest: digestOf(line)}
	if s.part.first == 0 {
		s.part.first = e.Seq
	}
	s.part.last = e.Seq
	return e, line, n, nil
}

// judge tells a torn tail from damage. A line counts as promised when any line,
// also one behind the flaw, or any header says that it was durable.
func (s *scanner) judge(n int64, flaw error) error {
	line := s.line
	if s.part.until != nil {
		if errors.Is(flaw, io.EOF) {
			flaw = errors.New("the file ends here")
		}
		return &DamageError{File: s.part.path, Line: line, Why: fmt.Sprintf("%v; a later segment goes on from event %d", flaw, s.part.until.Seq)}
	}
	if !isContent(flaw) {
		return fmt.Errorf("log segment %s line %d: %w", s.part.path, line, flaw)
	}
	dropped := n
	for {
		rest, n, err := s.r.next(MaxLine)
		dropped += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !isContent(err) {
			return fmt.Errorf("log segment %s: %w", s.part.path, err)
		}
		if e, err := parseLine(rest, ""); err == nil {
			s.chain.durable = max(s.chain.durable, e.Durable)
		}
	}
	if s.suspect <= s.chain.durable {
		return &DamageError{File: s.part.path, Line: line, Why: fmt.Sprintf("%v; event %d was on disk", flaw, s.chain.durable)}
	}
	s.chain.cut = &Cut{File: s.part.name, Line: line, Bytes: dropped, Why: flaw.Error()}
	s.part.ignored = dropped
	return nil
}

// isContent tells what the bytes say from trouble in reading them.
func isContent(err error) bool {
	var pathErr *os.PathError
	return !errors.As(err, &pathErr)
}
