// SPDX-License-Identifier: Apache-2.0

// Package replaymodel is a model server for tests and demonstrations: it speaks
// the OpenAI chat-completions protocol and the Anthropic messages protocol, answers
// from a script, and accounts for prefix-cache hits from the bytes that it really
// received. It can also record a script from a real endpoint.
//
// It decides which reply a request gets, from that request alone: it remembers
// no place in the script, so a retry, a resumed session and a restarted server
// get the same answer. What it does remember (bounded) is for the account, and
// how often a request came whose rule has faults.
// It refuses to know the agent: it sees bytes on a base URL, and it never
// re-encodes them before it compares them.
package replaymodel

import "github.com/agentsession-dev/operator/internal/policy"

// DefaultSnapshotTag is what the content of a context snapshot begins with.
const DefaultSnapshotTag = policy.SnapshotTag
