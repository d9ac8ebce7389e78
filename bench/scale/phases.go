// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/integration/controllers/agenttest"
)

// sight is what this process saw of the sessions.
type sight struct {
	mu      sync.Mutex
	ready   map[types.NamespacedName]bool
	applied map[types.NamespacedName]int64 // the generation that ModeApplied=True was said of
	at      map[types.NamespacedName]time.Time
	mode    map[types.NamespacedName]v1alpha1.SandboxMode // the one that is enforced
}

// watch plays the kubelet for every pod that appears, and keeps sight of the sessions.
func (w *world) watch(ctx context.Context) (*sight, error) {
	s := &sight{ready: map[types.NamespacedName]bool{}, applied: map[types.NamespacedName]int64{}, at: map[types.NamespacedName]time.Time{},
		mode: map[types.NamespacedName]v1alpha1.SandboxMode{}}
	pods := make(chan *corev1.Pod, w.o.sessions)
	for range w.o.workers {
		w.wg.Go(func() {
			for {
				select {
				case p := <-pods:
					if err := w.startPod(ctx, p); err != nil && ctx.Err() == nil {
						fmt.Println("playing the kubelet:", err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	err := errors.Join(
		w.follow(ctx, &corev1.PodList{}, func(e watch.Event) {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
				pods <- p
			}
		}),
		w.follow(ctx, &v1alpha1.AgentSessionList{}, func(e watch.Event) {
			if session, ok := e.Object.(*v1alpha1.AgentSession); ok {
				s.see(session)
			}
		}))
	return s, err
}

// follow calls do with every event of a kind, from the beginning.
func (w *world) follow(ctx context.Context, list client.ObjectList, do func(watch.Event)) error {
	stream, err := w.api.Watch(ctx, list)
	if err != nil {
		return err
	}
	w.wg.Go(func() {
		for {
			for e := range stream.ResultChan() {
				do(e)
			}
			if ctx.Err() != nil {
				return
			}
			for stream, err = w.api.Watch(ctx, list); err != nil && ctx.Err() == nil; stream, err = w.api.Watch(ctx, list) {
				time.Sleep(time.Second)
			}
			if err != nil {
				return
			}
		}
	})
	return nil
}

func (s *sight) see(session *v1alpha1.AgentSession) {
	name := client.ObjectKeyFromObject(session)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[name] = meta.IsStatusConditionTrue(session.Status.Conditions, v1alpha1.ConditionReady)
	c := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionModeApplied)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration < session.Generation {
		return
	}
	if mode := session.Status.Applied.Mode; c.ObservedGeneration > s.applied[name] || mode != s.mode[name] {
		s.applied[name], s.mode[name], s.at[name] = c.ObservedGeneration, mode, now
	}
}

func (s *sight) count(generation int64) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ready := range s.ready {
		if ready && s.applied[name] >= generation {
			n++
		}
	}
	return n
}

// startPod does what the kubelet does, and starts the agent.
func (w *world) startPod(ctx context.Context, p *corev1.Pod) error {
	var incarnation, uid, secret string
	for i, a := range p.Spec.InitContainers[0].Args {
		switch a {
		case "--incarnation":
			incarnation = p.Spec.InitContainers[0].Args[i+1]
		case "--session-uid":
			uid = p.Spec.InitContainers[0].Args[i+1]
		}
	}
	for _, v := range p.Spec.Volumes { // of the two the key is optional
		if v.Secret != nil && (v.Secret.Optional == nil || !*v.Secret.Optional) {
			secret = v.Secret.SecretName
		}
	}
	var s corev1.Secret
	if err := w.api.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: secret}, &s); err != nil {
		return fmt.Errorf("reading the link Secret of %s: %w", p.Name, err)
	}
	if _, err := w.fleet.Add(agenttest.Identity{SessionUID: uid, Incarnation: incarnation, PodUID: string(p.UID)}, s.Data); err != nil {
		return err
	}
	run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, podAddress, []corev1.PodIP{{IP: podAddress}}
	for _, c := range p.Spec.InitContainers {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: run, Ready: true})
	}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: run, Ready: true})
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	return w.api.Status().Update(ctx, p)
}

// each does something for every session, a few at a time.
func (w *world) each(ctx context.Context, do func(ctx context.Context, name types.NamespacedName) error) error {
	var mu sync.Mutex
	var failed error
	next := make(chan int)
	var wg sync.WaitGroup
	for range w.o.workers {
		wg.Go(func() {
			for i := range next {
				name := types.NamespacedName{Namespace: namespaceOf(i % w.o.namespace), Name: fmt.Sprintf("session-%d", i)}
				if err := do(ctx, name); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range w.o.sessions {
		next <- i
	}
	close(next)
	wg.Wait()
	return failed
}

func (w *world) create(ctx context.Context) (string, error) {
	err := w.each(ctx, func(ctx context.Context, name types.NamespacedName) error {
		s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		s.Spec.ClassName = "standard"
		return w.api.Create(ctx, s)
	})
	if err != nil {
		return "", err
	}
	return "", eventually(ctx, "all sessions are Ready", func() bool { return w.sight.count(1) == w.o.sessions })
}

// settle waits until few are listened to, and until the memory that was needed for
// more is given back.
func (w *world) settle(ctx context.Context) (string, error) {
	if err := eventually(ctx, "few are listened to", func() bool { return w.fleet.Connections.Load() <= kept }); err != nil {
		return "", err
	}
	return w.idle(ctx)
}

func (w *world) idle(ctx context.Context) (string, error) {
	select {
	case <-time.After(w.o.idle):
	case <-ctx.Done():
	}
	return "", ctx.Err()
}

// switchAll patches every session as fast as the clients can: faster than everything behind
// them can follow.
func (w *world) switchAll(ctx context.Context) (string, error) {
	return w.switches(ctx, "workspace-write", 2, nil)
}

// switchEvenly patches every session again, as many a second as can be followed.
func (w *world) switchEvenly(ctx context.Context) (string, error) {
	turn := time.NewTicker(time.Second / time.Duration(w.o.rate))
	defer turn.Stop()
	return w.switches(ctx, "danger-full-access", 3, turn.C)
}

// switches patches each session when it is its turn, and waits for the last to be applied.
func (w *world) switches(ctx context.Context, mode string, generation int64, turn <-chan time.Time) (string, error) {
	before := w.scrape()
	var mu sync.Mutex
	patched := map[types.NamespacedName]time.Time{}
	err := w.each(ctx, func(ctx context.Context, name types.NamespacedName) error {
		if turn != nil {
			<-turn
		}
		mu.Lock()
		patched[name] = time.Now()
		mu.Unlock()
		s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		return w.api.Patch(ctx, s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"sandbox":{"mode":%q}}}`, mode)))
	})
	if err != nil {
		return "", err
	}
	if err := eventually(ctx, "all sessions are switched", func() bool { return w.sight.count(generation) == w.o.sessions }); err != nil {
		return "", err
	}
	var took []time.Duration
	w.sight.mu.Lock()
	for name, at := range patched {
		took = append(took, w.sight.at[name].Sub(at))
	}
	w.sight.mu.Unlock()
	slices.Sort(took)
	return fmt.Sprintf("p50 %s, p99 %s (%s)", took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond),
		stages(before, w.scrape())), nil
}

// restart replaces the operator: the next one knows nothing and asks every agent once.
func (w *world) restart(ctx context.Context) (string, error) {
	w.stopOperator()
	heard := w.fleet.Pushes.Load()
	if err := w.startOperator(ctx); err != nil {
		return "", err
	}
	err := eventually(ctx, "every agent is asked", func() bool { return w.fleet.Pushes.Load() >= heard+int64(w.o.sessions) })
	if err != nil {
		return "", err
	}
	return w.settle(ctx)
}
