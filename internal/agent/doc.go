// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop of a session: turns, steps and tool calls, and the gate
// that every one of them passes. It decides in which order things happen and what
// the model is told about them. It executes nothing and knows no cluster: tools
// run where the supervisors are, and what is wanted comes over the link.
//
// The event log is the truth. What stands in memory is a fold over it (fold.go);
// what happens next is decided by pure functions of that fold (plan.go); and
// what was decided is on disk before anybody can see it (ledger.go). One lock orders
// policies, requests and calls, so their places in the log are the order in which
// they took effect.
package agent
