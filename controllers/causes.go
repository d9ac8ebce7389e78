// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// What has sessions looked at. One cause may have several looked at (a class), and several
// may have one looked at once.
const (
	causeSession   = "session"
	causeMessage   = "message"
	causePod       = "pod"
	causeClass     = "class"
	causeNamespace = "namespace"
	causeVolume    = "volume"
	causeNetwork   = "network" // policy
	causeAgent     = "agent"   // it said something new
	causeTime      = "time"    // something is due by time alone, or a write met a cache that was behind
	causeError     = "error"   // something broke, and is tried again
)

// Causes are all of them.
func Causes() []string {
	return []string{causeSession, causeMessage, causePod, causeClass, causeNamespace, causeVolume, causeNetwork, causeAgent, causeTime, causeError}
}

func countCause(cause string) { reconcileCauses.WithLabelValues(cause).Inc() }

// caused is a predicate that lets all pass and counts it. It is the last of its watch.
func caused(cause string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { countCause(cause); return true },
		UpdateFunc:  func(event.UpdateEvent) bool { countCause(cause); return true },
		DeleteFunc:  func(event.DeleteEvent) bool { countCause(cause); return true },
		GenericFunc: func(event.GenericEvent) bool { countCause(cause); return true },
	}
}
