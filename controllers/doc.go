// SPDX-License-Identifier: Apache-2.0

// Package controllers brings the world in line with AgentSessions. A reconcile
// observes once (world.go), decides in pure functions, acts in small phases, one
// file each, and computes the whole status in one place (status.go), which is
// written once and only when it changed.
//
//	observe ► resolve ► pod ► desired ► messages ► status ► events
//
// It refuses to know what enforces a policy and what a conversation is: the agent
// does, and what it says is untrusted.
package controllers
