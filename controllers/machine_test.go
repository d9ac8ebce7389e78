// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
)

// TestAnyOrderOfEvents drives the reconciler through random orders of what may happen to two
// sessions: people, kubelets, agents and other controllers act, caches are behind, writes
// fail, clocks jump. After every write the status must not contradict itself or what was
// so before (machine_laws_test.go), and when events stop, it must come to rest where the
// spec says. A failure prints its seed, shortened: -rapid.seed repeats it, -rapid.checks takes more.
func TestAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		for _, event := range rapid.SliceOfN(rapid.SampledFrom(happenings), 20, 120).Draw(rt, "events") {
			m.happen(event)
		}
		m.settle()
		m.checkRest()
		m.heal()
		m.settle()
		m.checkRest()
		m.checkHealed()
	})
}

// A controller that comes up behind an apiserver which is behind itself does not know that the
// session has started, and must not start it again.
func TestABehindControllerStartsNothingTwice(t *testing.T) {
	for _, storage := range []v1alpha1.StorageType{v1alpha1.StorageEmptyDir, v1alpha1.StoragePersistentVolumeClaim} {
		rapid.Check(t, func(rt *rapid.T) {
			m := newMachine(rt)
			s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
			s.Spec.ClassName, s.Spec.Workspace = "standard", &v1alpha1.Workspace{Storage: &v1alpha1.Storage{Type: storage}}
			if err := m.create(s); err != nil {
				rt.Fatal(err)
			}
			m.see("AgentSession")
			m.reconcile(m.r, nameOf(s))
			m.kubelet()
			m.see("Pod")
			m.see("Pod")
			m.see("PersistentVolumeClaim")
			m.reconcile(m.r, nameOf(s))
			if m.session("a").Status.StartTime == nil || m.cache.objects[m.key(s)].(*v1alpha1.AgentSession).Status.StartTime != nil {
				rt.Fatal("the session has not started, or the cache knows")
			}
			for _, o := range []client.Object{m.pod(s), m.claim(s)} {
				if o != (*corev1.PersistentVolumeClaim)(nil) {
					m.remove(m.key(o))
				}
			}
			m.kubelet()
			m.collect()
			for _, kind := range []string{"Pod", "PersistentVolumeClaim"} {
				for m.cache.behind(kind) {
					m.see(kind)
				}
			}
			m.restart(false)
			m.reconcile(m.r, nameOf(s))
			if m.pod(s) != nil {
				rt.Fatal("there is a second pod")
			}
			m.settle()
			if c := meta.FindStatusCondition(m.session("a").Status.Conditions, v1alpha1.ConditionCompleted); c.Reason != v1alpha1.ReasonStateLost {
				rt.Fatalf("the session goes on: %+v", c)
			}
		})
	}
}

// machine is a cluster with two sessions at most, and its controller.
type machine struct {
	t *rapid.T
	*store
	clock  time.Time     // the cluster's
	skew   time.Duration // the controller's clock against it
	cache  *lagging
	r      *SessionReconciler
	links  *links
	acting *lagging // the cache of the controller that works
	caches map[*SessionReconciler]*lagging
	last   *SessionReconciler // that led before

	queue  []types.NamespacedName
	timers map[types.NamespacedName]time.Time
	fault  string // what becomes of the next write
	quota  bool   // no pod may be created
	stuck  map[types.UID]bool
	agents map[types.UID]*agent      // by pod
	logs   map[types.UID][]*agentLog // by session, the newest last
	claims map[types.UID]*agentLog   // by volume claim
	ended  map[types.UID]string      // sessions, with the reason
	said   int
	writes int           // that changed something
	newest func() string // says what the newest write was

	during during
}

// during is what one reconcile did.
type during struct {
	creates                   []objectKey
	statuses, deletes, events int
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		t: t, clock: noon, timers: map[types.NamespacedName]time.Time{}, stuck: map[types.UID]bool{}, agents: map[types.UID]*agent{},
		caches: map[*SessionReconciler]*lagging{}, logs: map[types.UID][]*agentLog{}, claims: map[types.UID]*agentLog{}, ended: map[types.UID]string{},
	}
	m.store = newStore(func() time.Time { return m.clock })
	if err := m.create(namespaceObject("ns")); err != nil {
		t.Fatal(err)
	}
	m.happen("class")
	m.restart(true)
	return m
}

// restart is another process that leads: it remembers nothing, and its cache may be filled
// by an apiserver that is behind.
func (m *machine) restart(fresh bool) {
	m.last = m.r
	if fresh || m.cache == nil {
		m.cache = newLagging(m.store)
	}
	m.links = &links{now: func() time.Time { return m.clock }, open: map[types.NamespacedName]*heard{}, pushed: m.pushed,
		reach: func(e link.Endpoint) *agent {
			for _, p := range m.pods() {
				if string(p.UID) == e.PodUID {
					return m.reach(p)
				}
			}
			return nil
		}}
	cache := m.cache // which stays that of this controller
	cached := &api{store: m.store, index: cache.index, wrote: m.beforeWrite, after: m.afterWrite,
		from: func(k objectKey) client.Object { return cache.objects[k] },
		all:  func() map[objectKey]client.Object { return cache.objects }}
	live := &api{store: m.store, index: m.cache.index,
		from: func(k objectKey) client.Object { return m.objects[k] },
		all:  func() map[objectKey]client.Object { return m.objects }}
	m.r = &SessionReconciler{Client: cached, Live: live, Links: m.links, Authority: testAuthority{}, Recorder: m, AgentImage: "agent:1",
		Now: func() time.Time { return m.clock.Add(m.skew) }}
	m.caches[m.r] = cache
	m.queue, m.timers = nil, map[types.NamespacedName]time.Time{}
	for _, name := range []string{"a", "b"} {
		m.enqueue(types.NamespacedName{Namespace: "ns", Name: name})
	}
}

type testAuthority struct{}

func (testAuthority) Agent(string, string, string) (map[string][]byte, error) {
	return map[string][]byte{}, nil
}
func (testAuthority) Hash() string      { return "00" }
func (testAuthority) Known(string) bool { return true }

// Eventf counts events: they tell of a status that was written, or of a session that was deleted.
func (m *machine) Eventf(o runtime.Object, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	if _, ok := o.(*v1alpha1.AgentSession); !ok {
		return // of the namespace
	}
	m.during.events++
	if m.during.statuses+m.during.deletes == 0 {
		m.t.Fatalf("event %s although nothing was written", reason)
	}
}

func (m *machine) enqueue(name types.NamespacedName) {
	if !slices.Contains(m.queue, name) {
		m.queue = append(m.queue, name)
	}
}

func (m *machine) work() {
	if len(m.queue) > 0 {
		name := m.queue[0]
		m.queue = m.queue[1:]
		m.reconcile(m.r, name)
	}
}

func (m *machine) reconcile(r *SessionReconciler, name types.NamespacedName) {
	was := m.session(name.Name)
	m.during, m.acting = during{}, m.caches[r]
	result, err := r.Reconcile(m.t.Context(), reconcile.Request{NamespacedName: name})
	m.checkReconcile(was, m.session(name.Name), err)
	after := result.RequeueAfter
	if err != nil {
		after = time.Second
	}
	if at, ok := m.timers[name]; after > 0 && (!ok || at.After(m.clock.Add(after))) {
		m.timers[name] = m.clock.Add(after)
	}
}

// deposed is the controller that led before, which has not noticed yet.
func (m *machine) deposed(name string) {
	if m.last != nil {
		timers := m.timers
		m.timers = map[types.NamespacedName]time.Time{}
		m.reconcile(m.last, types.NamespacedName{Namespace: "ns", Name: name})
		m.timers = timers
	}
}

func (m *machine) see(kind string) {
	for _, r := range m.cache.next(kind, m.r) {
		m.enqueue(r.NamespacedName)
	}
}

func (m *machine) hear() (any bool) {
	for _, name := range m.links.hear() {
		m.enqueue(name)
		any = true
	}
	return any
}

func (m *machine) advance(d time.Duration) {
	m.clock = m.clock.Add(d)
	for name, at := range m.timers {
		if !at.After(m.clock) {
			delete(m.timers, name)
			m.enqueue(name)
		}
	}
}

// beforeWrite lets a write fail as faults have it.
func (m *machine) beforeWrite(verb string, k objectKey, _ client.Object) error {
	resource := schema.GroupResource{Resource: k.kind}
	if m.quota && verb == "create" && k.kind == "Pod" {
		return apierrors.NewForbidden(resource, k.Name, fmt.Errorf("exceeded quota"))
	}
	switch fault := m.fault; {
	case fault == "conflict" && verb != "create", fault == "error", fault == "forbidden" && verb == "create":
		m.fault = ""
		return map[string]error{
			"conflict": apierrors.NewConflict(resource, k.Name, fmt.Errorf("it was changed")), "error": apierrors.NewInternalError(fmt.Errorf("etcd is away")),
			"forbidden": apierrors.NewForbidden(resource, k.Name, fmt.Errorf("not now")),
		}[fault]
	}
	return nil
}

// afterWrite checks what was written, and may lose the answer.
func (m *machine) afterWrite(verb string, k objectKey, before, now client.Object) error {
	if before != now {
		m.writes++
	}
	m.checkWrite(verb, k, before, now)
	if m.fault == "lost answer" {
		m.fault = ""
		return apierrors.NewTimeoutError("no answer", 1)
	}
	return nil
}

// settle lets everything take its course until nothing moves but timers that change nothing.
func (m *machine) settle() {
	m.fault = ""
	for rounds, idle := 0, 0; idle < 6; rounds++ {
		if rounds > 3000 {
			m.t.Fatalf("it does not come to rest; the queue is %v, timers are %v", m.queue, m.timers)
		}
		switch {
		case m.kubelet(), m.collect(), m.hear():
		case !m.cache.current():
			for _, kind := range watched {
				m.see(kind)
			}
		case len(m.queue) > 0:
			m.work()
		default:
			at, ok := m.nextTime()
			if !ok {
				return
			}
			writes := m.writes
			m.advance(max(0, at.Sub(m.clock)))
			for m.hear() || len(m.queue) > 0 {
				m.work()
			}
			if idle++; m.writes != writes {
				idle = 0
			}
		}
	}
}

// nextTime is when something happens by time alone.
func (m *machine) nextTime() (at time.Time, ok bool) {
	for _, t := range m.timers {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, h := range m.links.open {
		if t := h.since.Add(30 * time.Second); !h.since.IsZero() && !h.o.Unreachable && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}
