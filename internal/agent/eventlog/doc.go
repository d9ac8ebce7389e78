// SPDX-License-Identifier: Apache-2.0

// Package eventlog keeps the one true record of a session: what was asked,
// decided, sent, answered and done, in order, each line chained to the one
// before it by its digest.
//
// It decides what counts as written, what a crash may cost and what it may not,
// and when a damaged log must stop the agent instead of starting it afresh. It
// refuses to know what the events mean: the payload types of events.go are
// shapes with names, and a type that this version has never heard of is kept,
// chained and handed on unchanged.
//
// The rule for its users is: append, commit, then act.
//
//	log, recovered, err := eventlog.Open(dir, eventlog.Options{PodUID: uid, Mirror: mirror.Line})
//	for event, err := range log.Events() { ... }         // fold what came before
//	event, err := log.AppendSync(eventlog.TypeToolStart, eventlog.ToolStart{...})
//	// Only now may the tool start.
//
// The format is described in docs/formats/event-log.md.
package eventlog
