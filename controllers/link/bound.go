// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What an agent may say at most. An agent that goes wrong must not fill a status.
const (
	maxMessage    = 512 // bytes of a sentence
	maxName       = 64  // bytes of a name or a digest
	maxMessages   = 64
	maxProblems   = 8
	maxContainers = 4
	maxLayers     = 16
	maxShown      = 16 << 10 // bytes of a preview or a justification
)

// bound cuts everything in an observed state to what a status can hold.
func bound(o *wire.Observed) {
	o.Unconfirmed = names(o.Unconfirmed, maxContainers)
	o.Containers = first(o.Containers, maxContainers)
	for i := range o.Containers {
		c := &o.Containers[i]
		c.Name = cut(c.Name, maxName)
		c.OutOfMemory = max(c.OutOfMemory, 0)
		c.Report.LandlockABI = min(max(c.Report.LandlockABI, 0), math.MaxInt16)
		c.Report.Layers = names(c.Report.Layers, maxLayers)
		c.Report.Detail = cut(c.Report.Detail, maxMessage)
	}
	o.Problems = first(o.Problems, maxProblems)
	for i := range o.Problems {
		o.Problems[i].Message = cut(o.Problems[i].Message, maxMessage)
	}
	o.Messages = o.Messages[max(0, len(o.Messages)-maxMessages):]
	for i := range o.Messages {
		m := &o.Messages[i]
		m.Sequence, m.Turn = count(m.Sequence), count(m.Turn)
		m.Reply = truncate(m.Reply, wire.MaxReply)
		m.Reason = cut(m.Reason, maxName)
	}
	// What would have to be cut is not shown at all: a person decides on the whole of it.
	o.Approvals = first(slices.DeleteFunc(o.Approvals, func(a wire.Approval) bool {
		return len(a.Preview)+len(a.Justification) > maxShown || len(a.CallID) > maxName || len(a.Digest) > maxName || len(a.Tool) > maxName
	}), wire.MaxApprovals)
	for i := range o.Approvals {
		a := &o.Approvals[i]
		a.Seq, a.PolicySeq = count(a.Seq), count(a.PolicySeq)
	}
	if o.Applied != nil {
		o.Applied.Digest = policy.Digest(cut(string(o.Applied.Digest), maxName))
		o.Applied.Seq, o.Applied.SnapshotSeq = count(o.Applied.Seq), count(o.Applied.SnapshotSeq)
		o.Applied.Killed = max(o.Applied.Killed, 0)
	}
	o.Activity.Turns, o.Activity.Steps = count(o.Activity.Turns), count(o.Activity.Steps)
	o.Activity.Calls, o.Activity.Terminals = max(o.Activity.Calls, 0), max(o.Activity.Terminals, 0)
	u := &o.Usage
	for _, n := range []*int64{&u.Input, &u.CachedInput, &u.Output} {
		*n = min(max(*n, 0), math.MaxInt64/256) // sums and percentages must not overflow
	}
	o.Log.Seq = count(o.Log.Seq)
	o.Log.Digest = cut(o.Log.Digest, maxName)
}

// count bounds a number to what a status can hold.
func count(n uint64) uint64 { return min(n, math.MaxInt64) }

func first[T any](list []T, n int) []T { return list[:min(len(list), n)] }

func names(list []string, n int) []string {
	list = first(list, n)
	for i := range list {
		list[i] = cut(list[i], maxName)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// cut makes one bounded line of s.
func cut(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, truncate(s, n))
	return strings.TrimSpace(s)
}

// truncate cuts s at a rune's end.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
