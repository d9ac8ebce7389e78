// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// memory is what this process remembers of sessions. Nothing is decided by it that
// could not be found out again: it saves writes, no more.
type memory struct {
	mu       sync.Mutex
	sessions map[types.NamespacedName]remembered
}

type remembered struct {
	uid     types.UID
	written *v1alpha1.AgentSession // what was written last, until the cache has it
	at      time.Time              // when
	aimed   int64                  // the newest generation that is to be applied
	since   time.Time              // when it was seen first
	taken   time.Time              // when a reconcile began with it
	spare   incarnation            // whose link Secret was created and whose pod was not
	linked  string                 // incarnation of the pod that was seen last, whose link Secret is to go with it
	leaving types.UID              // the pod whose agent was told that it is about to go
	told    time.Time              // when
	foreign time.Time              // when a pod that is not the session's was first seen under its name
	oom     oomTold                // of whom was told that they used up their memory
	mending types.UID              // the pod whose link Secret was looked after
	mended  time.Time              // when
}

// incarnation is one pod of a session, and the root that signed its link Secret.
type incarnation struct{ name, authority string }

// newest returns what this process wrote itself where the cache is still behind it.
func (m *memory) newest(cached *v1alpha1.AgentSession) *v1alpha1.AgentSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(cached)
	if r.written == nil {
		return cached
	}
	if c, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, r.written.ResourceVersion); err == nil && c < 0 {
		return r.written.DeepCopy()
	}
	r.written = nil
	m.putLocked(cached, r)
	return cached
}

// aim remembers when a generation was seen first that status does not know yet.
func (m *memory) aim(s *v1alpha1.AgentSession, now time.Time) {
	if s.Status.StartTime == nil || s.Status.ObservedGeneration >= s.Generation {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s); r.aimed < s.Generation {
		r.aimed, r.since, r.taken = s.Generation, now, time.Time{}
		m.putLocked(s, r)
	}
}

// take remembers when a reconcile began with the generation that is aimed at.
func (m *memory) take(s *v1alpha1.AgentSession, now time.Time) {
	m.aim(s, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s); r.aimed == s.Generation && r.taken.IsZero() && !r.since.IsZero() {
		r.taken = now
		m.putLocked(s, r)
	}
}

// hit returns when the present generation was seen first and when a reconcile began with it,
// once; zero after that.
func (m *memory) hit(s *v1alpha1.AgentSession) (since, taken time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	if r.aimed == s.Generation && !r.taken.IsZero() {
		since, taken, r.since, r.taken = r.since, r.taken, time.Time{}, time.Time{}
		m.putLocked(s, r)
	}
	return since, taken
}

// seen lets go of what was written once the cache has it.
func (m *memory) seen(cached *v1alpha1.AgentSession) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(cached)
	if r.written == nil {
		return
	}
	if c, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, r.written.ResourceVersion); err == nil && c >= 0 {
		r.written = nil
		m.putLocked(cached, r)
	}
}

func (m *memory) wrote(s *v1alpha1.AgentSession, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	r.written, r.at = s.DeepCopy(), at
	m.putLocked(s, r)
}

func (m *memory) lastWrite(s *v1alpha1.AgentSession) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ofLocked(s).at
}

func (m *memory) spare(s *v1alpha1.AgentSession) incarnation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ofLocked(s).spare
}

func (m *memory) setSpare(s *v1alpha1.AgentSession, i incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	r.spare = i
	m.putLocked(s, r)
}

func (m *memory) linked(s *v1alpha1.AgentSession) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ofLocked(s).linked
}

func (m *memory) setLinked(s *v1alpha1.AgentSession, incarnation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s); r.linked != incarnation {
		r.linked = incarnation
		m.putLocked(s, r)
	}
}

// tell remembers that a pod's agent has been told that the pod is about to go.
func (m *memory) tell(s *v1alpha1.AgentSession, pod *corev1.Pod, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	r.leaving, r.told = pod.UID, now
	m.putLocked(s, r)
	return now
}

// told returns when that was; zero when it was not.
func (m *memory) told(s *v1alpha1.AgentSession, pod *corev1.Pod) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s); pod != nil && r.leaving == pod.UID {
		return r.told
	}
	return time.Time{}
}

// foreign remembers since when a foreign pod has the name of the session's, and returns for how long.
func (m *memory) foreign(s *v1alpha1.AgentSession, there bool, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	switch {
	case !there && r.foreign.IsZero():
		return 0
	case !there:
		r.foreign = time.Time{}
	case r.foreign.IsZero():
		r.foreign = now
	}
	m.putLocked(s, r)
	if !there {
		return 0
	}
	return now.Sub(r.foreign)
}

// oomTold returns what was told of a pod's containers that used up their memory.
func (m *memory) oomTold(s *v1alpha1.AgentSession, pod types.UID) (told oomTold, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	return r.oom, r.oom.pod == pod
}

func (m *memory) setOOMTold(s *v1alpha1.AgentSession, told oomTold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	r.oom = told
	m.putLocked(s, r)
}

// setMended remembers that a pod's link Secret was there at a time.
func (m *memory) setMended(s *v1alpha1.AgentSession, pod *corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ofLocked(s)
	r.mending, r.mended = pod.UID, now
	m.putLocked(s, r)
}

// mended returns when that was; zero when nobody knows.
func (m *memory) mended(s *v1alpha1.AgentSession, pod *corev1.Pod) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ofLocked(s); r.mending == pod.UID {
		return r.mended
	}
	return time.Time{}
}

func (m *memory) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, name)
}

func (m *memory) ofLocked(s *v1alpha1.AgentSession) remembered {
	if r := m.sessions[nameOf(s)]; r.uid == s.UID {
		return r
	}
	return remembered{uid: s.UID}
}

func (m *memory) putLocked(s *v1alpha1.AgentSession, r remembered) {
	if m.sessions == nil {
		m.sessions = map[types.NamespacedName]remembered{}
	}
	m.sessions[nameOf(s)] = r
}

func nameOf(s *v1alpha1.AgentSession) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}
