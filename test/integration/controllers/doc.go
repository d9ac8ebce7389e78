// SPDX-License-Identifier: Apache-2.0

// Package controllers proves the controller against a real apiserver: reconciles are
// stepped by hand, the pod's status is set by the test in place of a kubelet, and the
// agent's end of the link is real TLS and real wire. The operator acts with the rights
// of its generated role and no others.
package controllers
