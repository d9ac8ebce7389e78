// SPDX-License-Identifier: Apache-2.0

// Package runnertest lets tests drive a real supervisor: it builds a container as the
// pod has it out of namespaces and mounts, and plays the agent's half of the control
// socket. It needs root and util-linux; nothing of it is part of a product binary.
package runnertest
