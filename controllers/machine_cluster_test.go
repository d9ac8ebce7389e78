// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// kubelet lets every pod go on as it will: it starts, or it ends.
func (m *machine) kubelet() (any bool) {
	for _, p := range m.pods() {
		switch claim := m.claimOf(p); {
		case m.stuck[p.UID]:
		case p.DeletionTimestamp != nil:
			m.drop(m.key(p))
			any = true
		case p.Status.Phase == "" || p.Status.Phase == corev1.PodPending:
			if claim == nil || m.objects[*claim] != nil && m.objects[*claim].GetDeletionTimestamp() == nil {
				m.start(p)
				any = true
			}
		}
	}
	return any
}

func (m *machine) start(p *corev1.Pod) {
	log := &agentLog{}
	if claim := m.claimOf(p); claim != nil {
		uid := m.objects[*claim].GetUID()
		if m.claims[uid] == nil {
			m.claims[uid] = log
		}
		log = m.claims[uid]
	}
	session := metav1.GetControllerOf(p).UID
	if !slices.Contains(m.logs[session], log) {
		m.logs[session] = append(m.logs[session], log)
	}
	a := &agent{podUID: string(p.UID), agentLog: log}
	a.boot(wire.Desired{SessionUID: string(session), Incarnation: incarnationOf(p)}, toolsContainers(p))
	m.agents[p.UID] = a
	edit(m.store, p, func(p *corev1.Pod) {
		p.Status = status(p, corev1.PodRunning, running())
		p.Status.PodIP, p.Spec.NodeName = "10.0.0.9", "node-1"
	})
}

// collect removes what belongs to nobody, and claims that no pod uses.
func (m *machine) collect() (any bool) {
	for _, k := range inOrder(m.objects) {
		o := m.objects[k]
		claim, _ := o.(*corev1.PersistentVolumeClaim)
		switch owners := o.GetOwnerReferences(); {
		case claim != nil && claim.DeletionTimestamp != nil && !slices.ContainsFunc(m.pods(), func(p *corev1.Pod) bool { c := m.claimOf(p); return c != nil && *c == k }):
			m.drop(k)
			any = true
		case len(owners) > 0 && o.GetDeletionTimestamp() == nil && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return m.alive(r.UID) }):
			m.remove(k)
			any = true
		}
	}
	return any
}

func (m *machine) alive(session types.UID) bool {
	for _, name := range []string{"a", "b"} {
		if s := m.session(name); s != nil && s.UID == session {
			return true
		}
	}
	return false
}

func (m *machine) session(name string) *v1alpha1.AgentSession {
	s, _ := m.objects[objectKey{"AgentSession", types.NamespacedName{Namespace: "ns", Name: name}}].(*v1alpha1.AgentSession)
	return s
}

func (m *machine) class() *v1alpha1.AgentSessionClass {
	c, _ := m.objects[objectKey{"AgentSessionClass", types.NamespacedName{Name: "standard"}}].(*v1alpha1.AgentSessionClass)
	return c
}

// pods are those that the controller made, in the order of their creation.
func (m *machine) pods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, o := range m.objects {
		if p, ok := o.(*corev1.Pod); ok && metav1.GetControllerOf(p) != nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (m *machine) pod(s *v1alpha1.AgentSession) *corev1.Pod {
	for _, p := range m.pods() {
		if metav1.IsControlledBy(p, s) {
			return p
		}
	}
	return nil
}

// reach is the agent of a pod, if it runs.
func (m *machine) reach(p *corev1.Pod) *agent {
	if p.DeletionTimestamp != nil || ended(p) || !agentRuns(p) {
		return nil
	}
	return m.agents[p.UID]
}

func (m *machine) claim(s *v1alpha1.AgentSession) *corev1.PersistentVolumeClaim {
	c, _ := m.objects[objectKey{"PersistentVolumeClaim", types.NamespacedName{Namespace: s.Namespace, Name: podspec.ClaimName(s)}}].(*corev1.PersistentVolumeClaim)
	return c
}

// bound is the NetworkPolicy of a session, if there is one.
func (m *machine) bound(s *v1alpha1.AgentSession) *networkingv1.NetworkPolicy {
	n, _ := m.objects[objectKey{"NetworkPolicy", types.NamespacedName{Namespace: s.Namespace, Name: podspec.PodName(s)}}].(*networkingv1.NetworkPolicy)
	return n
}

func (m *machine) claimOf(p *corev1.Pod) *objectKey {
	if s := podspec.StorageOf(p); s != nil && s.ClaimName != "" {
		return &objectKey{"PersistentVolumeClaim", types.NamespacedName{Namespace: p.Namespace, Name: s.ClaimName}}
	}
	return nil
}
