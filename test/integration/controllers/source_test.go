// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/internal/wire"
)

// applySource creates the session with a workspace that is to be filled.
func (b *bench) applySource(source v1alpha1.WorkspaceSource) {
	b.t.Helper()
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: b.name.Name}}
	s.Spec.ClassName, s.Spec.Prompt = b.class.Name, "Fix the build."
	s.Spec.Workspace = &v1alpha1.Workspace{Source: &source}
	b.create(s)
}

func ended(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}}
}

// fetching sets what the kubelet says of the fetch: its state, and that of its last try.
func (b *bench) fetching(state, last corev1.ContainerState) {
	b.t.Helper()
	b.setPod(func(p *corev1.Pod) {
		run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		p.Status.Phase, p.Status.PodIP = corev1.PodPending, "10.0.0.9"
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: podspec.AgentContainer, State: run},
			{Name: podspec.WorkspaceContainer, State: state, LastTerminationState: last},
		}
	})
}

func TestASourceThatCannotBeFetchedSaysWhyAndWhoMustAct(t *testing.T) {
	b := newBench(t)
	b.applySource(v1alpha1.WorkspaceSource{Type: v1alpha1.SourceGit, Git: &v1alpha1.GitSource{URL: "https://git.example.com/a.git"}})
	b.step()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	none := corev1.ContainerState{}

	b.fetching(running, none)
	b.step()
	b.wants("RunnerReady=False/PodPending", "Ready=False/PodPending")
	if !strings.Contains(b.conditions(), "is being fetched") || b.session().Status.StartTime != nil {
		t.Errorf("while the workspace is filled:\n%s", b.conditions())
	}

	b.fetching(ended(wire.SourceUnavailable, "git.example.com:443 is not reached"), none)
	b.step()
	b.wants("RunnerReady=False/SourceUnavailable", "Ready=False/SourceUnavailable", "Stalled=False/None", "Completed=False/Running")
	b.fetching(waiting, ended(wire.SourceUnavailable, "git.example.com:443 is not reached"))
	b.quiet()
	b.fetching(running, ended(wire.SourceUnavailable, "git.example.com:443 is not reached"))
	b.quiet()

	b.fetching(waiting, ended(wire.SourceFailed, "there is no such repository\x1b[31m\n\u202e"))
	b.step()
	b.wants("RunnerReady=False/SourceFailed", "Ready=False/SourceFailed", "Stalled=True/SourceFailed")
	if c := b.conditions(); !strings.Contains(c, "there is no such repository") || strings.ContainsAny(c, "\x1b\u202e") {
		t.Errorf("the message is not what the fetch said, in one safe line: %q", c)
	}
	var told []string
	for recorder := b.r.Recorder.(*events.FakeRecorder); len(recorder.Events) > 0; {
		told = append(told, <-recorder.Events)
	}
	if all := strings.Join(told, "\n"); !strings.Contains(all, "Warning SourceFailed") || !strings.Contains(all, "Warning SourceUnavailable") {
		t.Errorf("the events are\n%s", all)
	}
	b.quiet()

	// Somebody has made the repository: the next try succeeds.
	b.start()
	b.setPod(func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: podspec.WorkspaceContainer, State: ended(0, ""), LastTerminationState: ended(wire.SourceFailed, "there is no such repository")})
	})
	b.until("Ready=True/Running")
	b.wants("RunnerReady=True/RunnerReady", "Stalled=False/None")
	b.quiet()
}

// The agent is told nothing while the workspace is being filled: the session has not
// started, and an eviction is no loss.
func TestASessionStartsWithItsWorkspaceFilled(t *testing.T) {
	b := newBench(t)
	b.applySource(v1alpha1.WorkspaceSource{Type: v1alpha1.SourceConfigMap, ConfigMap: &v1alpha1.ConfigMapSource{Name: "inputs"}})
	b.step()
	b.start() // all containers but the fetch: it has no status yet
	b.step()
	if n := len(b.agent.Pushes()); n != 0 || b.session().Status.StartTime != nil {
		t.Errorf("%d pushes, started at %v", n, b.session().Status.StartTime)
	}
	first := b.pod()
	b.losePod()
	b.step()
	if second := b.pod(); second == nil || second.UID == first.UID {
		t.Fatalf("the pod was not replaced:\n%s", b.conditions())
	}
	b.start()
	// The kubelet may have removed the container; the pod's condition stays.
	b.setPod(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
	})
	b.until("Ready=True/Running")
}
