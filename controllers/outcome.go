// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// outcome is what remains to be done after a phase: nothing, something later, or
// something broke.
type outcome struct {
	after time.Duration // look again then; 0 is when a watch wakes us
	err   error         // something broke: backoff
	stale bool          // something was not written, because the cache was behind
}

// slowly is how often is tried again what only somebody else can put right without
// a watch of ours seeing it, such as a quota.
const slowly = time.Minute

// soon is how often is tried again at first what somebody else puts right who may be about to.
const soon = 2 * time.Second

// and is what remains after both.
func (o outcome) and(p outcome) outcome {
	switch {
	case o.after == 0:
		o.after = p.after
	case p.after != 0:
		o.after = min(o.after, p.after)
	}
	o.err = errors.Join(o.err, p.err)
	o.stale = o.stale || p.stale
	return o
}

// broke wraps an error. A conflict is no trouble: the cache was behind, look again soon.
func broke(err error, format string, args ...any) outcome {
	switch {
	case err == nil:
		return outcome{}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return outcome{after: 200 * time.Millisecond, stale: true}
	}
	return outcome{err: fmt.Errorf(format+": %w", append(args, err)...)}
}

// refusal is trouble that goes away when somebody acts: the reason and the message of
// a condition.
type refusal struct{ reason, message string }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}
