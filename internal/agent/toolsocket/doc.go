// SPDX-License-Identifier: Apache-2.0

// Package toolsocket is the agent's half of the control protocol. It decides who is
// the supervisor of a tools container, keeps the order of what it is told, and
// gathers what calls write, in terminals too, of which it has the near end. It refuses to know why a call is made or a bound is
// moved: the gate decides that.
//
// Commands in a tools container share the supervisor's user and can reach its
// socket, also while the agent restarts. So nobody is believed by name: see prove.
package toolsocket
