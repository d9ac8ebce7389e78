// SPDX-License-Identifier: Apache-2.0

// Package runner is the supervisor of a tools container: its first process, which
// proves to the agent that it is the supervisor, starts calls as the agent orders,
// and ends everything in the container when the agent says so, or is gone. It decides
// whether a call may start here and now. How a call is confined is package sandbox's
// business, how it is started and watched is package call's; what a call is for, the
// supervisor refuses to know.
//
// It holds no descriptor of the workspace and opens no path below a directory that a
// call can write. Every promise fails closed: a panic anywhere ends the process, and
// the end of the first process is the end of its container.
package runner
