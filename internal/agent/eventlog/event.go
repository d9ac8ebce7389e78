// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// Magic opens the header line of every segment.
	Magic = "agentsession-log"
	// Version is the format version that this package writes.
	Version = 1
	// MaxLine bounds a line, newline excluded. A longer one is not written, and
	// when read it is damage: a reader never allocates more for a line than this.
	MaxLine = 16 << 20
)

// Genesis is the digest that the first event of a log names as its predecessor.
var Genesis = strings.Repeat("0", 2*sha256.Size)

// Type names what an event records. Readers keep types that they do not know.
type Type string

// Event is one line of the log.
type Event struct {
	// Seq counts events from 1 without a gap, across segments.
	Seq uint64 `json:"seq"`
	// Time is when the event was appended, in UTC. Order is Seq's, never Time's.
	Time time.Time `json:"time"`
	Type Type      `json:"type"`
	// Data is a JSON object; Decode reads it.
	Data json.RawMessage `json:"data"`
	// Durable is the seq that was known to be on disk when this line was written.
	Durable uint64 `json:"durable"`
	// Prev is the digest of the line before this one, Genesis for the first.
	Prev string `json:"prev"`
}

// Decode reads the payload into v, which should be the struct of e.Type.
// Fields that v does not have are ignored: a newer version may have written them.
func (e Event) Decode(v any) error {
	if err := json.Unmarshal(e.Data, v); err != nil {
		return fmt.Errorf("decoding event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

// Head is a position in the chain: the last event's seq and its line's digest.
// The zero log has seq 0 and the digest Genesis.
type Head struct {
	Seq    uint64 `json:"seq"`
	Digest string `json:"digest"`
}

func digestOf(line []byte) string {
	sum := sha256.Sum256(line)
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

// ErrUnwritable is wrapped by the error of every call after a write or an fsync
// failed. What was appended but not committed may or may not survive; a later
// fsync that succeeds would prove nothing, so none is tried. The process should
// end: the next boot reads what the disk really holds.
var ErrUnwritable = errors.New("the event log cannot be written")

// ErrLocked is wrapped by Open when another process holds the log.
var ErrLocked = errors.New("the event log is in use by another process")

// DamageError is returned where the log is damaged at or below what it promised
// to keep. It is never repaired and never skipped.
type DamageError struct {
	File string // path of the segment
	Line int    // 1 is the header line
	Why  string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("event log damaged at %s line %d: %s; what comes before it may still be read with `agent log show`; "+
		"restore this file from a backup, or keep the directory for inspection and start a new session", e.File, e.Line, e.Why)
}
