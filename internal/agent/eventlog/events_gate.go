// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"encoding/json"
	"time"
)

// Retry says that an attempt of a step got no answer, or none of use, and that another request
// follows.
type Retry struct {
	Turn    int `json:"turn"`
	Step    int `json:"step"`
	Attempt int `json:"attempt"` // the one that failed, from 1
	// Reason is one word for programs, Message a sentence for people.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// DelayMillis is the wait before the next attempt.
	DelayMillis int64 `json:"delayMillis"`
	// Usage is of an answer that was of no use.
	Usage Usage `json:"usage,omitzero"`
}

// LeaseExpired says that the controller was not heard in time: no call starts
// until the lease is renewed.
type LeaseExpired struct {
	Epoch  uint64 `json:"epoch"`
	Killed int    `json:"killed,omitempty"` // processes ended by it
}

// LeaseRenewed says that calls may start again.
type LeaseRenewed struct {
	Epoch uint64 `json:"epoch"`
}

// ApprovalRequested says that a call waits for a person. It stays open under its ID
// over restarts. It is committed before anybody can see it.
type ApprovalRequested struct {
	ID     string `json:"id"`
	CallID string `json:"callID"`
	// Permissions is what the call asks for, Justification the model's own words.
	Permissions   string `json:"permissions"`
	Justification string `json:"justification,omitempty"`
	// Profile is what a grant would let the call run under, unparsed.
	Profile json.RawMessage `json:"profile,omitempty"`
	// ExpiresAt is when silence becomes a denial.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// PolicySeq is the policy that stood when it was asked.
	PolicySeq uint64 `json:"policySeq,omitempty"`
	Tool      string `json:"tool,omitempty"`
	// Preview shows all of what would run, and Digest is what a decision holds for.
	Preview string `json:"preview,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

// The decisions of an ApprovalDecided.
const (
	DecisionGranted   = "granted"
	DecisionDenied    = "denied"
	DecisionExpired   = "expired"   // nobody answered in time, or the grant was not used in time
	DecisionWithdrawn = "withdrawn" // the policy changed, or the turn or the session ended
)

// ApprovalDecided ends an ApprovalRequested. A grant can still expire or be withdrawn, as
// long as it is not used.
type ApprovalDecided struct {
	ID       string `json:"id"`
	Decision string `json:"decision"`
	By       string `json:"by,omitempty"`
	Message  string `json:"message,omitempty"`
}

// GrantUsed is committed before the one call that a grant is for may start. A
// grant that it names is spent, whatever becomes of the call.
type GrantUsed struct {
	ID     string `json:"id"` // of the ApprovalRequested
	CallID string `json:"callID"`
	Epoch  uint64 `json:"epoch"`
	// Profile is what the call runs under, unparsed.
	Profile json.RawMessage `json:"profile,omitempty"`
}

// The causes of a Compaction.
const (
	CauseWindow   = "window"   // the transcript came near the model's window
	CauseOverflow = "overflow" // the endpoint refused a request that did not fit
)

// Compaction replaces the oldest part of the transcript.
type Compaction struct {
	// UpTo is the last event whose messages it replaces.
	UpTo uint64 `json:"upTo"`
	// Summary is the user message that stands for them; empty when only results were cut.
	Summary string `json:"summary,omitempty"`
	// Cut names the calls whose results are shortened from here on, to Keep bytes each.
	Cut   []string `json:"cut,omitempty"`
	Keep  int      `json:"keep,omitempty"`
	Cause string   `json:"cause"` // what made it due
	Usage Usage    `json:"usage"`
}
