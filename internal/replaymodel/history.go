// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"slices"
	"sync"
	"time"
)

// Record is the account of one request, as GET /requests shows it.
type Record struct {
	N            int       `json:"n"`
	Time         time.Time `json:"time"`
	Status       int       `json:"status"`
	Error        string    `json:"error,omitempty"`
	Rule         string    `json:"rule,omitempty"`
	Fault        string    `json:"fault,omitempty"`
	Format       string    `json:"format"`
	Stream       bool      `json:"stream"`
	Complete     bool      `json:"complete"` // the whole reply was written
	Conversation string    `json:"conversation,omitempty"`
	BodyBytes    int       `json:"bodyBytes"`
	BodyDigest   string    `json:"bodyDigest"`
	HeaderDigest string    `json:"headerDigest,omitempty"`

	// ConversationDigest is what when.digest of a rule names.
	ConversationDigest string `json:"conversationDigest,omitempty"`

	// In tokens and whole blocks, as the reply's usage says it.
	PromptTokens     int `json:"promptTokens"`
	CachedTokens     int `json:"cachedTokens"`
	UncachedTokens   int `json:"uncachedTokens"`
	CacheWriteTokens int `json:"cacheWriteTokens,omitempty"` // of the uncached, where a breakpoint had them cached

	// In bytes of the prefix, exact, against the conversation's earlier requests.
	PromptBytes       int          `json:"promptBytes"`
	CommonPrefixBytes int          `json:"commonPrefixBytes"`
	NewBytes          int          `json:"newBytes"`
	NewMessages       []NewMessage `json:"newMessages,omitempty"`

	Snapshots    int    `json:"snapshots"`
	LastSnapshot string `json:"lastSnapshot,omitempty"`
}

// NewMessage is a message that does not lie wholly within the common prefix.
type NewMessage struct {
	Index    int    `json:"index"`
	Role     string `json:"role"`
	Kind     string `json:"kind"` // snapshot, or the role
	Bytes    int    `json:"bytes"`
	NewBytes int    `json:"newBytes"` // those behind the common prefix
}

// Limits bound what the server remembers. The newest request is always kept.
type Limits struct {
	Requests int // records, with their bodies
	Bytes    int // of their bodies and prefixes together
	Blocks   int // of the prefix cache
}

// DefaultLimits hold a demonstration of some hundred requests in a small pod.
var DefaultLimits = Limits{Requests: 500, Bytes: 96 << 20, Blocks: 1 << 16}

type entry struct {
	record Record
	body   []byte
	stream []byte // nil unless the request was answered: a refused one warms no cache
}

func (e *entry) size() int { return len(e.body) + len(e.stream) }

// history remembers requests and accounts each one against those before it.
type history struct {
	mu      sync.Mutex
	limits  Limits
	cache   *blockCache
	entries []*entry // contiguous numbers, newest last
	size    int
	last    int
}

func newHistory(limits Limits) *history {
	return &history{limits: limits, cache: newBlockCache(limits.Blocks)}
}

// add numbers and keeps a request. A nil prompt means that the body was not
// understood; answered says that the prompt is processed and thus cached.
func (h *history) add(r Record, body []byte, p *prompt, messages []message, answered bool) Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	r.N = h.last
	e := &entry{body: body}
	if p != nil {
		h.accountLocked(&r, p, messages)
		if answered {
			e.stream = p.stream
			h.cache.keep(p)
		}
	}
	e.record = r
	h.entries = append(h.entries, e)
	h.size += e.size()
	h.evictLocked()
	return r
}

func (h *history) accountLocked(r *Record, p *prompt, messages []message) {
	r.PromptBytes = len(p.stream)
	r.PromptTokens = tokens(r.PromptBytes)
	read, write := h.cache.cached(p)
	r.CachedTokens = read / blockBytes * blockTokens
	r.CacheWriteTokens = (read+write)/blockBytes*blockTokens - r.CachedTokens
	r.UncachedTokens = r.PromptTokens - r.CachedTokens
	for _, e := range slices.Backward(h.entries) {
		if e.record.Conversation != r.Conversation || len(e.stream) <= r.CommonPrefixBytes {
			continue // of another conversation, refused, or too short to share more
		}
		r.CommonPrefixBytes = max(r.CommonPrefixBytes, commonPrefix(e.stream, p.stream))
	}
	r.NewBytes = r.PromptBytes - r.CommonPrefixBytes
	for i, s := range p.spans {
		if s.end <= r.CommonPrefixBytes || s.start == s.end {
			continue
		}
		r.NewMessages = append(r.NewMessages, NewMessage{
			Index: i, Role: messages[i].role, Kind: messages[i].kind,
			Bytes: s.end - s.start, NewBytes: s.end - max(s.start, r.CommonPrefixBytes),
		})
	}
}

func (h *history) evictLocked() {
	for len(h.entries) > 1 && (len(h.entries) > h.limits.Requests || h.size > h.limits.Bytes) {
		h.size -= h.entries[0].size()
		h.entries[0] = nil
		h.entries = h.entries[1:]
	}
}

// finish notes how the reply to a request ended; no trouble means that all of
// it was written.
func (h *history) finish(n, status int, trouble string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entryLocked(n); e != nil {
		e.record.Status, e.record.Error, e.record.Complete = status, trouble, trouble == ""
	}
}

// entryLocked returns nil for a number that is not kept.
func (h *history) entryLocked(n int) *entry {
	at := n - 1 - (h.last - len(h.entries))
	if at < 0 || at >= len(h.entries) {
		return nil
	}
	return h.entries[at]
}

func (h *history) records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Record, 0, len(h.entries))
	for _, e := range h.entries {
		r := e.record
		r.NewMessages = slices.Clone(r.NewMessages)
		out = append(out, r)
	}
	return out
}

// body returns the bytes of a request; forgotten tells a number that was used
// from one that never was.
func (h *history) body(n int) (body []byte, kept, forgotten bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entryLocked(n); e != nil {
		return e.body, true, false
	}
	return nil, false, n >= 1 && n <= h.last
}
