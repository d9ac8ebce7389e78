// SPDX-License-Identifier: Apache-2.0

package toolsocket

import "io"

// Clip keeps the beginning and the end of what is written to it, and how much that was.
type Clip struct {
	// Whole, if set, is given all of it once it is more than is kept here.
	Whole io.Writer

	half  int
	head  []byte
	tail  []byte // a ring once it is full
	start int    // where the ring begins
	total int64
}

// NewClip keeps n bytes at most.
func NewClip(n int) *Clip { return &Clip{half: n / 2} }

// Write never fails.
func (c *Clip) Write(p []byte) (int, error) {
	n := len(p)
	if kept := int64(len(c.head) + len(c.tail)); c.Whole != nil && c.total+int64(n) > 2*int64(c.half) {
		if c.total == kept { // the first that is too much
			o := c.Output()
			_, _ = c.Whole.Write(append(o.Head, o.Tail...))
		}
		_, _ = c.Whole.Write(p)
	}
	c.total += int64(n)
	if room := c.half - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head, p = append(c.head, p[:k]...), p[k:]
	}
	if len(p) > c.half {
		p = p[len(p)-c.half:]
	}
	if room := c.half - len(c.tail); room > 0 {
		k := min(room, len(p))
		c.tail, p = append(c.tail, p[:k]...), p[k:]
	}
	for len(p) > 0 {
		k := copy(c.tail[c.start:], p)
		c.start, p = (c.start+k)%len(c.tail), p[k:]
	}
	return n, nil
}

// Output is what was kept of what a call wrote.
type Output struct {
	Head, Tail []byte
	Omitted    int64 // bytes between them that are gone
}

// Output returns what was kept, as a copy.
func (c *Clip) Output() Output {
	tail := append(append([]byte{}, c.tail[c.start:]...), c.tail[:c.start]...)
	return Output{
		Head: append([]byte{}, c.head...), Tail: tail,
		Omitted: c.total - int64(len(c.head)+len(c.tail)),
	}
}
