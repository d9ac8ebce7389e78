// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// observer watches sessions and messages all the time, and checks what may not happen to them
// on their way either.
type observer struct {
	t        *testing.T
	mu       sync.Mutex
	messages map[string]*v1alpha1.SessionMessage // as they were seen last, also those that are gone
	sessions map[types.UID]*v1alpha1.AgentSession
	removed  map[string]string // of messages that went without an answer: the session of each
	faults   map[string]bool   // each is told once
}

// observe watches until ctx ends; the returned function waits for that.
func observe(ctx context.Context, t *testing.T) (o *observer, wait func()) {
	o = &observer{t: t, messages: map[string]*v1alpha1.SessionMessage{}, sessions: map[types.UID]*v1alpha1.AgentSession{}, removed: map[string]string{}, faults: map[string]bool{}}
	var both sync.WaitGroup
	both.Go(func() { o.follow(ctx, &v1alpha1.SessionMessageList{}) })
	both.Go(func() { o.follow(ctx, &v1alpha1.AgentSessionList{}) })
	return o, both.Wait
}

// follow lists and watches, again whenever the apiserver has been away.
func (o *observer) follow(ctx context.Context, list client.ObjectList) {
	for ; ctx.Err() == nil; sleep(ctx, 500*time.Millisecond) {
		if err := api.List(ctx, list, client.InNamespace(namespace)); err != nil {
			continue
		}
		o.listed(list)
		w, err := api.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: listOptions(list)})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			o.saw(e.Object, e.Type == watch.Deleted)
		}
		w.Stop()
	}
}

func (o *observer) listed(list client.ObjectList) {
	switch l := list.(type) {
	case *v1alpha1.SessionMessageList:
		there := map[string]bool{}
		for i := range l.Items {
			there[string(l.Items[i].UID)] = true
			o.saw(&l.Items[i], false)
		}
		for _, m := range o.without(there) {
			o.saw(m, true)
		}
	case *v1alpha1.AgentSessionList:
		there := map[types.UID]bool{}
		for i := range l.Items {
			there[l.Items[i].UID] = true
			o.saw(&l.Items[i], false)
		}
		o.mu.Lock()
		maps.DeleteFunc(o.sessions, func(uid types.UID, _ *v1alpha1.AgentSession) bool { return !there[uid] })
		o.mu.Unlock()
	}
}

func (o *observer) saw(object any, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch now := object.(type) {
	case *v1alpha1.SessionMessage:
		before := o.messages[string(now.UID)]
		o.messages[string(now.UID)] = now.DeepCopy()
		o.checkMessageLocked(before, now, gone)
	case *v1alpha1.AgentSession:
		if before := o.sessions[now.UID]; before != nil && !gone {
			o.checkSessionLocked(before, now)
		}
		o.sessions[now.UID] = now.DeepCopy()
		if gone {
			delete(o.sessions, now.UID)
		}
	}
}

// checkMessageLocked checks that an answer stays what it is, and that no message is removed
// before it has one.
func (o *observer) checkMessageLocked(before, now *v1alpha1.SessionMessage, gone bool) {
	if gone && !over(now) {
		o.removed[now.Name] = now.Spec.SessionName
	}
	if before == nil {
		return
	}
	a, b := before.Status, now.Status
	if a.Sequence != 0 && a.Sequence != b.Sequence || a.Turn != 0 && (a.Turn != b.Turn || a.Reply != b.Reply) || over(before) && !over(now) {
		o.faultLocked("message %s had %+v and has %+v: a second answer, or none", now.Name, a, b)
	}
}

// over reports whether nothing more will become of a message.
func over(m *v1alpha1.SessionMessage) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionAnswered) ||
		slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == v1alpha1.ReasonSessionCompleted })
}

// checkRemoved checks that no message of a session that is still there went without an answer.
func (o *observer) checkRemoved() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sessions {
		for name, session := range o.removed {
			if session == s.Name {
				o.faultLocked("message %s was removed before it was answered", name)
			}
		}
	}
}

// checkSessionLocked checks that nothing goes back that only goes forward, and that ModeApplied
// never says of one policy what holds for another.
func (o *observer) checkSessionLocked(before, now *v1alpha1.AgentSession) {
	a, b := before.Status, now.Status
	back := func(what string, was, is int64) {
		if is < was {
			o.faultLocked("session %s: %s went from %d back to %d", now.Name, what, was, is)
		}
	}
	back("observedGeneration", a.ObservedGeneration, b.ObservedGeneration)
	if a.Log != nil && b.Log != nil {
		back("the log", a.Log.LastSeq, b.Log.LastSeq)
	}
	if a.Usage != nil && b.Usage != nil {
		back("usage", a.Usage.TotalTokens, b.Usage.TotalTokens)
	}
	if a.Activity != nil && b.Activity != nil {
		back("turns", a.Activity.Turns, b.Activity.Turns)
	}
	if a.Applied != nil && b.Applied != nil {
		back("the applied generation", a.Applied.Generation, b.Applied.Generation)
	}
	if a.StartTime != nil && !a.StartTime.Equal(b.StartTime) {
		o.faultLocked("session %s started a second time", now.Name)
	}
	if meta.IsStatusConditionTrue(a.Conditions, v1alpha1.ConditionCompleted) && !meta.IsStatusConditionTrue(b.Conditions, v1alpha1.ConditionCompleted) {
		o.faultLocked("session %s was finished and is not any more", now.Name)
	}
	c := meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionModeApplied)
	if c != nil && c.Status == "True" && (b.Applied == nil || b.Policy == nil || b.Applied.Digest != b.Policy.Digest || b.Applied.Generation < c.ObservedGeneration ||
		c.ObservedGeneration == now.Generation && b.Applied.Mode != now.Spec.Sandbox.Mode) {
		o.faultLocked("session %s has ModeApplied=True for generation %d of %d: spec %s, policy %+v, applied %+v",
			now.Name, c.ObservedGeneration, now.Generation, now.Spec.Sandbox.Mode, b.Policy, b.Applied)
	}
}

func (o *observer) faultLocked(format string, args ...any) {
	if f := fmt.Sprintf(format, args...); !o.faults[f] {
		o.faults[f] = true
		o.t.Error(f)
	}
}

// message is one as it was seen last.
func (o *observer) message(uid string) *v1alpha1.SessionMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.messages[uid]
}

// without are the messages that are known and of whom it is not known that they are there.
func (o *observer) without(there map[string]bool) (absent []*v1alpha1.SessionMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uid, m := range o.messages {
		if !there[uid] {
			absent = append(absent, m)
		}
	}
	return absent
}

func listOptions(list client.ObjectList) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
}
