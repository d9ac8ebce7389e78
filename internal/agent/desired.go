// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/linkserver"
	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// applyPatience is how long an answer to a push waits for the push to be applied.
const applyPatience = 80 * time.Millisecond

// maxMessage is the largest message that is taken, in bytes. It fits a log line twice over.
const maxMessage = 1 << 20

func refuse(status int, format string, args ...any) error {
	return &linkserver.StatusError{Status: status, Refusal: wire.Refusal{Error: fmt.Sprintf(format, args...)}}
}

// SetDesired takes a push. It returns what is observed then, and whether the push is
// applied; if it is not yet, it still drains what runs. A *linkserver.StatusError means
// that nothing has changed.
func (a *Agent) SetDesired(ctx context.Context, d wire.Desired) (wire.Observed, bool, error) {
	if err := a.checkIdentity(d); err != nil {
		return wire.Observed{}, false, err
	}
	doc, err := check(d)
	if err != nil {
		return wire.Observed{}, false, err
	}
	d.Stamp.ClassCreated = d.Stamp.ClassCreated.UTC() // so that equal stamps are == too
	ctx, cancel := context.WithTimeout(ctx, applyPatience)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.acceptLocked(d, doc); err != nil {
		return wire.Observed{}, false, err
	}
	if a.lost != nil {
		return a.observed, false, nil
	}
	_ = a.awaitLocked(ctx, func() bool { return a.applied == a.target })
	return a.observed, a.applied == a.target, nil
}

// checkIdentity refuses what is meant for somebody else: addresses of pods are used again.
func (a *Agent) checkIdentity(d wire.Desired) error {
	switch {
	case d.Wire != wire.Version:
		return refuse(http.StatusMisdirectedRequest, "wire version %d is not spoken here, only %d", d.Wire, wire.Version)
	case d.SessionUID != a.o.SessionUID:
		return refuse(http.StatusMisdirectedRequest, "this is not session %.60q", d.SessionUID)
	case d.Incarnation != a.o.Incarnation:
		return refuse(http.StatusMisdirectedRequest, "this is not incarnation %.60q", d.Incarnation)
	}
	return nil
}

// check finds what is wrong with a push by itself.
func check(d wire.Desired) (policy.Document, error) {
	doc, err := policy.Decode([]byte(d.Policy))
	if err != nil {
		return doc, refuse(http.StatusBadRequest, "policy: %v", err)
	}
	c := d.Config
	u, urlErr := url.Parse(c.Model.BaseURL)
	switch {
	case !model.Known(c.Model.Provider):
		return doc, refuse(http.StatusBadRequest, "config.model.provider: %.60q is not known here, only %s", c.Model.Provider, strings.Join(model.Providers(), " and "))
	case c.Model.Name == "":
		return doc, refuse(http.StatusBadRequest, "config.model.name: it is empty")
	case urlErr != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return doc, refuse(http.StatusBadRequest, "config.model.baseURL: it must be like https://host/v1")
	case !strings.HasPrefix(c.Workspace, "/"):
		return doc, refuse(http.StatusBadRequest, "config.workspace: %.60q is not an absolute path", c.Workspace)
	case len(c.Prompt) > maxMessage:
		return doc, refuse(http.StatusBadRequest, "config.prompt: %d bytes are more than %d", len(c.Prompt), maxMessage)
	case c.RuntimeContext != "" && c.RuntimeContext != wire.RuntimeContextEnabled && c.RuntimeContext != wire.RuntimeContextSuppressed:
		return doc, refuse(http.StatusBadRequest, "config.runtimeContext: %.60q is neither %s nor %s", c.RuntimeContext, wire.RuntimeContextEnabled, wire.RuntimeContextSuppressed)
	case min(c.Limits.MaxTurns, c.Limits.MaxStepsPerTurn, c.Limits.MaxTotalTokens) < 0:
		return doc, refuse(http.StatusBadRequest, "config.limits: a limit is less than 0")
	case c.GraceSeconds < 0 || c.GraceSeconds > wire.MaxGraceSeconds:
		return doc, refuse(http.StatusBadRequest, "config.graceSeconds: %d is not between 0 and %d", c.GraceSeconds, wire.MaxGraceSeconds)
	case c.ApprovalTimeoutSeconds < 0:
		return doc, refuse(http.StatusBadRequest, "config.approvalTimeoutSeconds: %d is negative", c.ApprovalTimeoutSeconds)
	case d.LeaseSeconds < 0:
		return doc, refuse(http.StatusBadRequest, "leaseSeconds: %d is negative", d.LeaseSeconds)
	case d.Stamp.SessionUID != d.SessionUID:
		return doc, refuse(http.StatusBadRequest, "stamp.sessionUID: it is not this session's")
	}
	if err := checkDecisions(d.Decisions); err != nil {
		return doc, refuse(http.StatusBadRequest, "%v", err)
	}
	for i, m := range d.Messages {
		switch {
		case m.UID == "":
			return doc, refuse(http.StatusBadRequest, "messages[%d].uid: it is empty", i)
		case strings.TrimSpace(m.Content) == "":
			return doc, refuse(http.StatusBadRequest, "messages[%d].content: it is empty", i)
		case len(m.Content) > maxMessage:
			return doc, refuse(http.StatusBadRequest, "messages[%d].content: %d bytes are more than %d", i, len(m.Content), maxMessage)
		}
	}
	return doc, nil
}

// acceptLocked takes a push over as a whole or not at all.
func (a *Agent) acceptLocked(d wire.Desired, doc policy.Document) error {
	if a.fatal != nil {
		return refuse(http.StatusServiceUnavailable, "%v", a.fatal)
	}
	if err := a.compareHeadLocked(d.LogHead); err != nil || a.lost != nil {
		return err
	}
	if err := a.checkStampLocked(d, doc.Policy); err != nil {
		return err
	}
	if err := a.recordLocked(append(a.f.planWithdrawal(doc.Policy), a.planReceived(d)...)...); err != nil {
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	if err := a.decideLocked(d.Decisions); err != nil {
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	a.fresh = false
	a.config = &d.Config
	a.trace.Configure(d.Config.TraceEndpoint, d.Config.Session)
	a.lease.length = time.Duration(d.LeaseSeconds) * time.Second
	a.aimLocked(pushed{doc: doc, stamp: d.Stamp, workspace: d.Config.Workspace})
	if a.f.turn.open && a.f.turn.cancelled && a.stopTurn != nil {
		a.stopTurn(errCancelled)
	}
	if d.Stop && !a.stopping {
		a.stopping = true
		if a.stopTurn != nil {
			a.stopTurn(errStopped)
		}
	}
	if d.Suspend && !a.suspending {
		a.suspending = true
		if a.stopTurn != nil {
			a.stopTurn(errSuspended)
		}
	}
	a.publishLocked()
	return nil
}

// checkStampLocked refuses a push that would put older inputs back in force.
func (a *Agent) checkStampLocked(d wire.Desired, to policy.Policy) error {
	inForce, from := a.inForceLocked()
	if why := policy.Accept(inForce, from, d.Stamp, to, d.Replaces); why != "" {
		return &linkserver.StatusError{Status: http.StatusConflict, Refusal: wire.Refusal{Error: why, Stamp: inForce}}
	}
	return nil
}

// inForceLocked is the newest policy that was accepted: in this boot, or in the log.
func (a *Agent) inForceLocked() (*policy.Stamp, policy.Policy) {
	switch {
	case a.target != nil:
		return &a.target.stamp, a.target.doc.Policy
	case a.f.policy.seq != 0:
		return &a.f.policy.stamp, a.f.policy.doc.Policy
	}
	return nil, policy.Policy{}
}

// planReceived says what a push adds to the log: the session's beginning, and messages
// that were not received before.
func (a *Agent) planReceived(d wire.Desired) []entry {
	var entries []entry
	if a.fresh {
		namespace, name, _ := strings.Cut(d.Config.Session, "/")
		entries = append(entries, entry{eventlog.TypeSessionStart, eventlog.SessionStart{
			SessionUID: a.o.SessionUID, Namespace: namespace, Name: name, Config: mustJSON(d.Config),
		}}, a.bootEntry())
	}
	if a.f.ended {
		return entries
	}
	seen := map[string]bool{}
	receive := func(m eventlog.MessageReceived) {
		if _, before := a.f.byUID[m.UID]; before || seen[m.UID] {
			return
		}
		seen[m.UID] = true
		entries = append(entries, entry{eventlog.TypeMessageReceived, m})
	}
	if strings.TrimSpace(d.Config.Prompt) != "" {
		receive(eventlog.MessageReceived{Content: d.Config.Prompt})
	}
	for _, m := range d.Messages {
		receive(eventlog.MessageReceived{UID: m.UID, CreatedAt: m.CreatedAt, Author: m.Author, Content: m.Content, Interrupt: m.Interrupt})
	}
	return entries
}

// compareHeadLocked finds out, once a boot, whether the log holds what status knows.
func (a *Agent) compareHeadLocked(known wire.LogHead) error {
	if a.headSeen && (a.lost != nil || known.Seq <= a.f.seq) {
		return nil
	}
	a.headSeen = true
	head := a.log.Committed()
	switch {
	case known.Seq == 0:
		return nil
	case a.fresh:
		a.lost = &wire.Problem{Reason: wire.StateLost, Message: fmt.Sprintf(
			"The event log is empty although it once held %d events: the volume was lost. Create a new session.", known.Seq)}
	case known.Seq > head.Seq:
		a.lost = &wire.Problem{Reason: wire.LogRolledBack, Message: fmt.Sprintf(
			"The event log ends at event %d although it once held %d: an older copy of the volume was put back. Restore the newer one, or create a new session.", head.Seq, known.Seq)}
	default:
		digest, err := a.digestOf(known.Seq)
		if err != nil {
			return refuse(http.StatusServiceUnavailable, "reading the event log: %v", err)
		}
		if known.Digest != "" && digest != known.Digest {
			a.lost = &wire.Problem{Reason: wire.LogRolledBack, Message: fmt.Sprintf(
				"Event %d of the log is not the one that was there before: another volume was put in its place. Restore the right one, or create a new session.", known.Seq)}
		}
	}
	if a.lost != nil {
		a.o.Log.Error("The event log is not the one that status knows; no turn runs", "reason", a.lost.Reason, "message", a.lost.Message)
		a.publishLocked()
	}
	return nil
}

// digestOf returns the digest of one event's line.
func (a *Agent) digestOf(seq uint64) (string, error) {
	if head := a.log.Committed(); head.Seq == seq {
		return head.Digest, nil
	}
	for e, err := range a.log.Events() {
		if err != nil {
			return "", err
		}
		if e.Seq == seq+1 {
			return e.Prev, nil
		}
	}
	return "", errors.New("the log ended early")
}

// Observed waits until the revision is another one than after, or ctx ends.
func (a *Agent) Observed(ctx context.Context, after uint64) wire.Observed {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.awaitLocked(ctx, func() bool { return a.observed.Revision != after })
	return a.observed
}
