// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What goes wrong in a session that runs: the condition and who must act, the event, and that the
// session is ready again once it is over.
func TestTroubleOfARunningSession(t *testing.T) {
	problem := func(r wire.ProblemReason) func(*bench) {
		return func(b *bench) {
			b.agent.Update(func(o *wire.Observed) { o.Problems = []wire.Problem{{Reason: r, Message: "in its words"}} })
		}
	}
	healthy := func(b *bench) {
		b.agent.Update(func(o *wire.Observed) {
			o.Problems = nil
			for i := range o.Containers {
				o.Containers[i].Connected = true
				o.Containers[i].Report = wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7, Layers: []string{"landlock", "seccomp"}}
			}
		})
	}
	report := func(e wire.Enforcement) func(*bench) {
		return func(b *bench) {
			b.agent.Update(func(o *wire.Observed) { o.Containers[1].Report = e })
		}
	}
	for name, tc := range map[string]struct {
		class  func(*v1alpha1.AgentSessionClass)
		happen func(*bench)
		over   func(*bench)
		wants  []string
	}{
		"the log cannot be written": {nil, problem(wire.LogUnwritable), healthy,
			[]string{"RunnerReady=False/LogUnwritable", "Stalled=False/None"}},
		"an older copy of the volume was put back": {nil, problem(wire.LogRolledBack), healthy,
			[]string{"RunnerReady=False/LogRolledBack", "Stalled=True/LogRolledBack"}},
		"the Secret with the key is missing, and appears": {nil, problem(wire.ModelKeyMissing), healthy,
			[]string{"RunnerReady=False/ModelKeyMissing", "Stalled=True/ModelKeyMissing"}},
		"the model does not answer": {nil, problem(wire.ModelUnavailable), healthy,
			[]string{"Ready=False/ModelUnavailable", "Active=False/ModelUnavailable", "RunnerReady=True/RunnerReady", "Stalled=False/None"}},
		"a tools container stays away": {nil, func(b *bench) {
			b.agent.Update(func(o *wire.Observed) {
				o.Containers[1].Connected = false
				o.Problems = []wire.Problem{{Reason: wire.ToolsUnreachable, Message: "tools-rw has been away for 30 s"}}
			})
		}, healthy, []string{"RunnerReady=False/ToolsUnreachable", "Enforced=False/AwaitingProbe", "Stalled=False/None"}},
		"the kernel cannot enforce the mode": {nil, report(wire.Enforcement{Level: wire.LevelMount}), healthy,
			[]string{"Enforced=False/LandlockUnavailable", "ModeApplied=False/NotEnforced", "Stalled=True/LandlockUnavailable"}},
		"the kernel enforces less than the class demands": {
			func(c *v1alpha1.AgentSessionClass) { c.Spec.Enforcement.Minimum = v1alpha1.MinimumFull },
			report(wire.Enforcement{Level: wire.LevelFiles, LandlockABI: 5}), healthy,
			[]string{"Enforced=False/BelowMinimum", "ModeApplied=False/NotEnforced", "Stalled=True/BelowMinimum"},
		},
		"a layer did not refuse what it must": {nil, problem(wire.ProbeFailed), healthy,
			[]string{"Enforced=False/ProbeFailed", "ModeApplied=False/NotEnforced", "Stalled=True/ProbeFailed"}},
		"a tools container runs out of memory again and again": {nil, func(b *bench) {
			b.setPod(func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
				p.Status.ContainerStatuses[1].LastTerminationState = killed
			})
		}, func(b *bench) { b.setPod(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = alive() }) },
			[]string{"RunnerReady=False/ContainerFailed", "Stalled=False/None"}},
		"a tools container ran out of memory and is on its way back": {nil, func(b *bench) {
			b.agent.Update(func(o *wire.Observed) { o.Containers[1].Connected = false })
			b.setPod(func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1].RestartCount++
				p.Status.ContainerStatuses[1].LastTerminationState = killed
			})
		}, healthy, []string{"RunnerReady=False/ContainerFailed", "Stalled=False/None"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if tc.class != nil {
				tc.class(b.class)
				if err := admin.Update(t.Context(), b.class); err != nil {
					t.Fatal(err)
				}
			}
			b.ready(v1alpha1.ModeWorkspaceWrite)
			b.events()
			tc.happen(b)
			b.pulse()
			b.until(tc.wants[0])
			b.wants(tc.wants...)
			_, why, _ := strings.Cut(tc.wants[0], "/")
			if got := b.events(); !strings.Contains(got, "Warning "+why) {
				t.Errorf("no event says %s: %q", why, got)
			}
			b.quiet()
			tc.over(b)
			b.pulse()
			b.until("Ready=True/Running")
			b.wants("Stalled=False/None")
			b.quiet()
		})
	}
}

// Who runs out of memory is told of in an event, once, also where it is over before a condition could
// say so: the kernel ends one process, or the container with all that is in it.
func TestAnEventTellsOfEveryoneWhoRanOutOfMemory(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	tells := func(when string, want ...string) {
		t.Helper()
		b.step()
		b.step()
		all := b.events()
		if n := strings.Count(all, "Warning OutOfMemory"); n != min(len(want), 1) {
			t.Errorf("%s: %d events: %q", when, n, all)
		}
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%s: %q is not in %q", when, w, all)
			}
		}
	}
	ends := func(at time.Time) {
		b.setPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1].RestartCount++
			p.Status.ContainerStatuses[1].LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.NewTime(at),
			}}
		})
	}
	used := func(calls int) {
		b.agent.Update(func(o *wire.Observed) { o.Containers[1].OutOfMemory = calls })
		b.pulse()
		b.eventually("the link has heard it", func() bool { b.step(); return len(b.r.Recorder.(*events.FakeRecorder).Events) > 0 })
	}
	tells("at first")
	ends(time.Now())
	tells("a container ended", "tools-rw used up its memory", "was ended with all that ran in it", "resources.toolsRW.limits.memory of class "+b.class.Name)
	tells("after that")
	ends(time.Now().Add(2 * time.Second))
	tells("it ended again", "was ended with all that ran in it")
	used(1)
	tells("the kernel ended a process", "the kernel ended a process in it", "resources.toolsRW.limits.memory of class "+b.class.Name)
	tells("after that")
	used(2)
	tells("the kernel ended another one", "the kernel ended a process in it")
	b.wants("Ready=True/Running", "Completed=False/Running")

	// The next operator tells nothing of it a second time, as far as it can know.
	ends(time.Now().Add(-time.Hour))
	b.restart()
	tells("another operator")
	b.quiet()
}

var killed = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}

func alive() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

// pulse makes the kubelet say something, so that an agent at rest is looked at.
func (b *bench) pulse() {
	b.t.Helper()
	b.setPod(func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].RestartCount++ })
}

// events returns those that were recorded since the last time.
func (b *bench) events() string {
	var all []string
	for recorder := b.r.Recorder.(*events.FakeRecorder); len(recorder.Events) > 0; {
		all = append(all, <-recorder.Events)
	}
	return strings.Join(all, "\n")
}

// What keeps a pod from starting is said in the words of who knows.
func TestTroubleBeforeTheStart(t *testing.T) {
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "tools-ro", Image: "tools:1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	unscheduled := func(message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
		}
	}
	for name, tc := range map[string]struct {
		status       func(*corev1.Pod)
		reason, says string
	}{
		"no node has room":              {unscheduled("0/3 nodes are available: 3 Insufficient memory."), v1alpha1.ReasonPodPending, "3 Insufficient memory"},
		"its volume claim is not bound": {unscheduled("pod has unbound immediate PersistentVolumeClaims."), v1alpha1.ReasonPodPending, "unbound immediate PersistentVolumeClaims"},
		"its image does not exist":      {waiting("ImagePullBackOff", `Back-off pulling image "tools:1": ErrImagePull: not found`), v1alpha1.ReasonImagePullFailed, "not found"},
		"its image has no such user":    {waiting("CreateContainerError", "no such user"), v1alpha1.ReasonContainerFailed, "no such user"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.persist(v1alpha1.RetentionDelete)
			b.apply(v1alpha1.ModeReadOnly)
			b.step()
			b.setPod(tc.status)
			b.step()
			b.wants("RunnerReady=False/"+tc.reason, "Ready=False/"+tc.reason, "Stalled=False/None", "Completed=False/Running")
			if !strings.Contains(b.conditions(), tc.says) {
				t.Errorf("nobody says %q:\n%s", tc.says, b.conditions())
			}
			b.quiet()
			b.setPod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{} })
			b.start()
			b.until("Ready=True/Running")
		})
	}
}

// deaf are links to an agent that has not answered for long.
type deaf struct{ controllers.Links }

func (d deaf) Set(context.Context, link.Endpoint, wire.Desired) (link.Observation, bool) {
	return link.Observation{Unreachable: true, Trouble: "no answer in time"}, false
}

func TestAnAgentOrItsNodeIsGone(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	hears := b.r.Links
	b.r.Links = deaf{hears}
	b.step()
	b.wants("RunnerReady=False/RunnerUnreachable", "ModeApplied=False/RunnerUnreachable", "Active=False/Paused", "Completed=False/Running", "Stalled=False/None")
	b.quiet()
	b.setPod(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	})
	b.step()
	b.wants("RunnerReady=False/NodeLost", "Ready=False/NodeLost", "Completed=False/Running")
	if p := b.pod(); p == nil || p.DeletionTimestamp != nil {
		t.Error("the pod was removed: its containers may still run")
	}
	b.quiet()
	b.r.Links = hears
	b.setPod(func(p *corev1.Pod) { p.Status.Conditions = nil })
	b.until("Ready=True/Running")
}

func TestSessionsThatAreNotAccepted(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"default-1", "default-2"} {
		c := &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.DefaultClassAnnotation: "true"}}, Spec: b.class.Spec}
		b.create(c)
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), c) })
	}
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: b.name.Name}}
	b.create(s)
	b.step()
	b.wants("Accepted=False/AmbiguousDefaultClass", "RunnerReady=False/NotAccepted", "ModeApplied=False/NotAccepted", "Stalled=True/AmbiguousDefaultClass")
	b.quiet()
	if err := admin.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s = &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: b.name.Name}}
	s.Spec.ClassName, s.Spec.Model = b.class.Name, &v1alpha1.ModelChoice{Name: "other"}
	b.create(s)
	b.step()
	b.wants("Accepted=False/ModelNotAllowed", "Stalled=True/ModelNotAllowed")
	if b.pod() != nil || len(b.secrets()) > 0 {
		t.Error("something was created for a session that is not accepted")
	}
	b.class.Spec.Model.AllowedNames = []string{"other"}
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.step()
	b.wants("Accepted=True/Accepted", "RunnerReady=False/PodPending")
}

// A class that goes under a running session takes nothing from it and gives it nothing; one
// of the same name that comes later is its class again.
func TestTheClassGoesUnderARunningSession(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	if err := admin.Delete(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	n := len(b.agent.Pushes())
	b.patchMode(v1alpha1.ModeDangerFullAccess)
	b.step()
	b.wants("Accepted=False/ClassNotFound", "Ready=False/ClassNotFound", "ModeApplied=False/NotAccepted", "Stalled=True/ClassNotFound", "Completed=False/Running")
	if p := b.pod(); p == nil || p.DeletionTimestamp != nil || len(b.agent.Pushes()) != n {
		t.Errorf("the pod is %v, %d pushes without a class", p, len(b.agent.Pushes())-n)
	}
	b.quiet()
	again := &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: b.class.Name}, Spec: b.class.Spec}
	again.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	b.class = again
	b.create(again)
	b.until("ModeApplied=True/Clamped")
	if got := b.session().Status.Applied.Mode; got != v1alpha1.ModeReadOnly {
		t.Errorf("%s is applied under a ceiling of read-only", got)
	}
}

func TestANamespaceThatTerminatesGetsNoPod(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.name.Namespace}}); err != nil {
		t.Fatal(err)
	}
	if result := b.step(); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	b.wants("RunnerReady=False/PodRejected")
	if !strings.Contains(b.conditions(), "being terminated") {
		t.Errorf("the reason is not told:\n%s", b.conditions())
	}
	before := b.session()
	if b.step(); b.session().ResourceVersion != before.ResourceVersion {
		t.Errorf("the same refusal is told in other words:\n%s\n%s", describe(before.Status.Conditions), b.conditions())
	}
}

// The apiserver is away for a while: the error is the queue's, and nothing is taken for gone.
func TestTheApiserverIsAway(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	here, live := b.r.Client, b.r.Live
	b.r.Client, b.r.Live = unreachable(here), unreachable(here)
	if _, err := b.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.name}); err == nil {
		t.Error("a reconcile without an apiserver succeeds")
	}
	b.r.Client, b.r.Live = here, live
	b.quiet()
	b.wants("Ready=True/Running")
}

// etcd is restored to an older state: the agent holds a policy of a later generation, and the
// spec that stands now is put in force all the same, by name.
func TestEtcdWasRestoredToAnOlderState(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeReadOnly)
	later := b.agent.Pushes()[0]
	doc, err := policy.Decode([]byte(later.Policy))
	if err != nil {
		t.Fatal(err)
	}
	// No apiserver takes an older object back, so the agent goes forward: it and its log know what is gone.
	later.Stamp.SessionGeneration += 10
	b.agent.Force(later.Stamp, doc.Policy)
	b.agent.Update(func(o *wire.Observed) { o.Log = wire.LogHead{Seq: 1000, Digest: "later"} })
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.until("ModeApplied=True/Applied")
	if push := b.agent.Pushes()[len(b.agent.Pushes())-1]; push.Replaces == nil || push.Replaces.SessionGeneration != later.Stamp.SessionGeneration {
		t.Errorf("the last push replaces %+v", push.Replaces)
	}
	if s := b.session(); s.Status.Applied.Mode != v1alpha1.ModeWorkspaceWrite || s.Status.Applied.Generation != s.Generation {
		t.Errorf("applied is %+v", s.Status.Applied)
	}
}

// unreachable fails every call as a client does whose apiserver is away.
func unreachable(c client.Client) client.Client {
	away := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return away
		},
	})
}

// overruled are links to an agent that another controller is always faster to tell.
type overruled struct{ controllers.Links }

func (o overruled) Set(_ context.Context, e link.Endpoint, d wire.Desired) (link.Observation, bool) {
	last := o.Last(e)
	last.Refused = &d.Stamp
	return last, true
}

// Two controllers push against one another: who is refused twice says so, and looks again.
func TestAPolicyThatIsRefusedAgainIsSaid(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.patchMode(v1alpha1.ModeDangerFullAccess)
	links := b.r.Links
	b.r.Links = overruled{links}
	if result := b.step(); result.RequeueAfter == 0 {
		t.Error("nobody looks again")
	}
	b.wants("ModeApplied=False/PolicyOlder", "Ready=False/PolicyOlder", "Stalled=False/None")
	b.r.Links = links
	b.until("ModeApplied=True/Applied")
}
