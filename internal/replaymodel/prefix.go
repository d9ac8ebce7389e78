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

// prompt is a request as a prefix cache sees it: model, tools, then each message
// (system messages come first in the list), all as received, nothing between them.
type prompt struct {
	stream []byte
	spans  []span // one per message
}

type span struct{ start, end int }

func promptOf(req *request) prompt {
	var p prompt
	p.stream = append(p.stream, req.raw("model")...)
	p.stream = append(p.stream, req.raw("tools")...)
	for _, m := range req.messages {
		start := len(p.stream)
		p.stream = append(p.stream, m.raw...)
		p.spans = append(p.spans, span{start, len(p.stream)})
	}
	return p
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
