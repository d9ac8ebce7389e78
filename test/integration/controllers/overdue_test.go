// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// A container that does not confirm a narrowing takes its pod with it, with a grace and
// never forced: the name stays taken until the kubelet has seen the end.
func TestAPodThatDoesNotConfirmIsDeleted(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.bindPod("node-1") // so that it stays until its kubelet has ended it
	b.setPod(func(p *corev1.Pod) {
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-time.Hour))
		}
	})
	b.agent.Drain()
	b.patchMode(v1alpha1.ModeReadOnly)
	b.until("ModeApplied=False/Draining")
	if p := b.pod(); p.DeletionTimestamp != nil {
		t.Fatal("the pod is deleted while it may still confirm")
	}
	uid := b.pod().UID
	b.agent.Update(func(o *wire.Observed) { o.Unconfirmed, o.Overdue = []string{wire.ToolsRW}, []string{wire.ToolsRW} })
	b.until("RunnerReady=False/PodTerminating")
	p := b.pod()
	if p == nil || p.UID != uid || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 1 {
		t.Fatalf("the pod is %+v, want it to go with a grace of 1 s", p)
	}
	if b.has("ModeApplied=True/Applied") || b.has("Completed=True/StateLost") {
		t.Errorf("before the pod is gone:\n%s", b.conditions())
	}
	b.losePod()
	b.until("Completed=True/StateLost")
	if b.has("ModeApplied=True/Applied") {
		t.Errorf("after the pod is gone:\n%s", b.conditions())
	}
}

// bindPod does what the scheduler does.
func (b *bench) bindPod(node string) {
	b.t.Helper()
	p := b.pod()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := admin.SubResource("binding").Create(b.t.Context(), p, binding); client.IgnoreAlreadyExists(err) != nil {
		b.t.Fatal(err)
	}
}
