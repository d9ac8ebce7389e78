// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
)

// Tokens are an approximation that needs no vocabulary: four bytes each, rounded
// up. A cache block is 64 of them.
const (
	bytesPerToken = 4
	blockTokens   = 64
	blockBytes    = bytesPerToken * blockTokens
)

func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// lookBack is how many blocks, the marked one included, are tried for an earlier
// breakpoint where the provider caches at breakpoints only.
const lookBack = 20

// prompt is a request as a prefix cache sees it: model, tools, then each message
// (system messages come first in the list), all as received, nothing between them.
type prompt struct {
	stream []byte
	spans  []span // one per message

	breakpoints bool
	ends        []int // of the tools and of each message, in the stream
	marks       []int // indexes of ends that carry a breakpoint
}

type span struct{ start, end int }

// promptOf leaves out what the modelled provider's template leaves out.
func promptOf(req *request, how accounting) prompt {
	p := prompt{breakpoints: req.breakpoints}
	p.stream = append(p.stream, req.raw("model")...)
	p.stream = append(p.stream, req.raw("tools")...)
	p.end(req.toolsMarked)
	dropUntil := 0
	if how.DropReasoningBeforeLastUser {
		dropUntil = req.lastUser()
	}
	for i, m := range req.messages {
		start := len(p.stream)
		if i < dropUntil {
			p.stream = append(p.stream, m.withoutReasoning()...)
		} else {
			p.stream = append(p.stream, m.raw...)
		}
		p.spans = append(p.spans, span{start, len(p.stream)})
		p.end(m.marked)
	}
	return p
}

func (p *prompt) end(marked bool) {
	if marked {
		p.marks = append(p.marks, len(p.ends))
	}
	p.ends = append(p.ends, len(p.stream))
}

// lastUser is the index of the last message with the user's role, context
// snapshots included: a template does not know them apart.
func (r *request) lastUser() int {
	for i, m := range slices.Backward(r.messages) {
		if m.role == roleUser {
			return i
		}
	}
	return 0
}

// withoutReasoning is an assistant message as it stands in a template that
// drops its reasoning; any other message is whole.
func (m *message) withoutReasoning() []byte {
	switch {
	case m.role != roleAssistant:
		return m.raw
	case m.kind == kindThinking || m.kind == "redacted_thinking":
		return nil
	}
	out, err := editObject(m.raw, func(name string, value []byte) ([]byte, bool) {
		return value, name != "reasoning_content" && name != "reasoning"
	})
	if err != nil {
		return m.raw // a text in place of a block holds no reasoning
	}
	return out
}

// conversationDigest identifies a request by what the model is to answer:
// model, tools and every message with its role, without cache breakpoints.
func conversationDigest(req *request) string {
	h := sha256.New()
	writePiece(h, req.raw("model"))
	writePiece(h, req.raw("tools"))
	for _, m := range req.messages {
		writePiece(h, []byte(m.role))
		writePiece(h, m.raw)
	}
	return digestString(h)
}

// headerDigest covers all that must not change within a session: every parameter
// but messages and the stream's, in the order of their names, and the system messages.
func headerDigest(req *request) string {
	fields := slices.SortedFunc(slices.Values(req.fields), func(a, b field) int { return cmp.Compare(a.name, b.name) })
	h := sha256.New()
	for _, f := range fields {
		if f.name == "stream" || f.name == "stream_options" {
			continue
		}
		writePiece(h, []byte(f.name))
		writePiece(h, f.raw)
	}
	writeSystem(h, req)
	return digestString(h)
}

// conversationOf names the conversation that a request belongs to: model, tools,
// system and first user message that is no snapshot.
func conversationOf(req *request) string {
	h := sha256.New()
	writePiece(h, req.raw("model"))
	writePiece(h, req.raw("tools"))
	writeSystem(h, req)
	for _, m := range req.messages {
		if m.kind == roleUser {
			writePiece(h, m.raw)
			break
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func writeSystem(h hash.Hash, req *request) {
	for _, m := range req.messages {
		if m.role == roleSystem || m.role == roleDeveloper {
			writePiece(h, m.raw)
		}
	}
}

// writePiece writes a length before the bytes, so that pieces cannot run into each other.
func writePiece(h hash.Hash, piece []byte) {
	h.Write(strconv.AppendInt(nil, int64(len(piece)), 10))
	h.Write([]byte{':'})
	h.Write(piece)
}

func digestString(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func bodyDigest(body []byte) string {
	h := sha256.New()
	h.Write(body)
	return digestString(h)
}

// blockHash identifies a block together with all that stands before it.
type blockHash [sha256.Size]byte

// chain hashes the full blocks of a stream, each over its predecessor's hash.
func chain(stream []byte) []blockHash {
	out := make([]blockHash, 0, len(stream)/blockBytes)
	var previous blockHash
	for block := range slices.Chunk(stream, blockBytes) {
		if len(block) < blockBytes {
			break
		}
		previous = sha256.Sum256(append(previous[:], block...))
		out = append(out, previous)
	}
	return out
}

// prefixes identifies the stream up to each of its ends.
func (p *prompt) prefixes() []blockHash {
	out := make([]blockHash, 0, len(p.ends))
	h, from := sha256.New(), 0
	for _, end := range p.ends {
		h.Write(p.stream[from:end])
		from = end
		out = append(out, blockHash(h.Sum(nil)))
	}
	return out
}

// cached is how many bytes of a prompt an earlier one left in the cache, and
// how many more of it will be there afterwards.
func (c *blockCache) cached(p *prompt) (read, write int) {
	if !p.breakpoints {
		return c.hits(chain(p.stream)) * blockBytes, 0
	}
	prefixes := p.prefixes()
	for _, mark := range p.marks {
		write = p.ends[mark]
		for at := mark; at >= 0 && at > mark-lookBack; at-- {
			if c.elements[prefixes[at]] != nil {
				read = max(read, p.ends[at])
				break
			}
		}
	}
	return read, max(0, write-read)
}

// keep remembers a prompt that was processed.
func (c *blockCache) keep(p *prompt) {
	if !p.breakpoints {
		c.add(chain(p.stream))
		return
	}
	prefixes := p.prefixes()
	marked := make([]blockHash, 0, len(p.marks))
	for _, mark := range p.marks {
		marked = append(marked, prefixes[mark])
	}
	c.add(marked)
}

// blockCache remembers blocks, the least recently used are forgotten first.
type blockCache struct {
	capacity int
	order    *list.List // of blockHash, most recently used in front
	elements map[blockHash]*list.Element
}

func newBlockCache(capacity int) *blockCache {
	return &blockCache{capacity: capacity, order: list.New(), elements: map[blockHash]*list.Element{}}
}

// hits counts the leading blocks that are known.
func (c *blockCache) hits(blocks []blockHash) int {
	for i, b := range blocks {
		if c.elements[b] == nil {
			return i
		}
	}
	return len(blocks)
}

// add remembers the blocks, from the last to the first: a prefix must outlive
// what follows it, which is worthless without it.
func (c *blockCache) add(blocks []blockHash) {
	for _, b := range slices.Backward(blocks) {
		if e := c.elements[b]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.elements[b] = c.order.PushFront(b)
	}
	for c.order.Len() > c.capacity {
		oldest := c.order.Remove(c.order.Back()).(blockHash)
		delete(c.elements, oldest)
	}
}

// commonPrefix is the number of leading bytes that both have.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
