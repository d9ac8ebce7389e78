// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// choose creates the session with a tools image of its own.
func (b *bench) choose(image string) {
	b.t.Helper()
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: b.name.Name}}
	s.Spec.ClassName, s.Spec.ToolsImage = b.class.Name, image
	b.create(s)
}

// changeClass changes the bench's class.
func (b *bench) changeClass(change func(*v1alpha1.AgentSessionClassSpec)) {
	b.t.Helper()
	change(&b.class.Spec)
	if err := admin.Update(b.t.Context(), b.class); err != nil {
		b.t.Fatalf("changing the class: %v", err)
	}
}

func toolsImages(p *corev1.Pod) (images []string) {
	for _, c := range p.Spec.Containers {
		images = append(images, c.Image)
	}
	return images
}

func TestAToolsImageThatTheClassDoesNotAllow(t *testing.T) {
	b := newBench(t)
	b.choose("registry.example/team/go:1.26")
	b.step()
	b.wants("Accepted=False/ToolsImageNotAllowed", "RunnerReady=False/NotAccepted", "Stalled=True/ToolsImageNotAllowed")
	if b.pod() != nil || len(b.secrets()) > 0 {
		t.Error("something was created for a session that is not accepted")
	}
	b.quiet()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Images.AllowedTools = []string{"registry.example/team/*"} })
	b.step()
	b.wants("Accepted=True/Accepted", "RunnerReady=False/PodPending")
	if got := strings.Join(toolsImages(b.pod()), " "); got != "registry.example/team/go:1.26 registry.example/team/go:1.26" {
		t.Errorf("the tools run in %s", got)
	}
}

// An image that is withdrawn stays under the pods that have it. None is started with it any
// more, and none is ended for the sake of another that would not be.
func TestAToolsImageIsWithdrawn(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.UpdateStrategy, c.Images.AllowedTools = v1alpha1.UpdateWhenIdle, []string{"go"}
	})
	b.choose("go:1.26")
	b.step()
	b.start()
	b.until("Ready=True/Running")
	first := b.pod()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) {
		c.Images.AllowedTools = nil
		c.Images.Agent = "agent:2" // by which the pod is outdated
	})
	b.r.Now = func() time.Time { return time.Now().Add(time.Hour) } // so that it would be replaced
	b.step()
	b.wants("Accepted=True/Accepted", "Ready=True/Running", "Outdated=True/InputsChanged")
	if p := b.pod(); p == nil || p.UID != first.UID || p.DeletionTimestamp != nil {
		t.Fatal("the pod was ended")
	}
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.until("ModeApplied=True/Applied")
	b.losePod()
	b.step()
	b.wants("Accepted=False/ToolsImageNotAllowed", "Ready=False/ToolsImageNotAllowed", "Stalled=True/ToolsImageNotAllowed", "Completed=False/Running")
	if b.pod() != nil {
		t.Error("a pod was started with it")
	}
	b.quiet()
	b.changeClass(func(c *v1alpha1.AgentSessionClassSpec) { c.Images.AllowedTools = []string{"go"} })
	b.step()
	b.start()
	b.until("Ready=True/Running")
}
