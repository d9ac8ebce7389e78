// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

// beforePod calls do once, before the operator's next pod is created.
func (b *bench) beforePod(do func(pod *corev1.Pod) error) {
	b.t.Helper()
	c, err := client.NewWithWatch(operator, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	b.r.Client = interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, ok := o.(*corev1.Pod); ok && do != nil {
				err := do(pod)
				do = nil
				if err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
	})
}

func (b *bench) linkSecretNames() (names []string) {
	for _, s := range b.secrets() {
		names = append(names, s.Name)
	}
	return names
}

// Who deletes a pod leaves no key behind.
func TestALinkSecretGoesWithItsPod(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	first := b.linkSecretNames()
	b.losePod()
	b.step()
	second := b.linkSecretNames()
	if len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("link Secrets before %q and after %q", first, second)
	}
	b.start()
	b.until("Ready=True/Running")
	b.quiet()
}

// Of two controllers that create the pod at once one does, and the other cleans up.
func TestAnotherControllerWasFaster(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.beforePod(func(*corev1.Pod) error {
		in := podspec.Input{Session: b.session(), Class: b.class, AgentImage: "agent:1", Incarnation: "other", CAHash: ca.Hash()}
		files, err := ca.Agent(in.CAHash, string(in.Session.UID), in.Incarnation)
		if err != nil {
			return err
		}
		secret, err := podspec.Typed[corev1.Secret](podspec.LinkSecret(in, files))
		if err != nil {
			return err
		}
		pod, err := podspec.Typed[corev1.Pod](podspec.Pod(in))
		if err != nil {
			return err
		}
		b.create(secret)
		b.create(pod)
		return nil
	})
	b.step()
	if names := b.linkSecretNames(); len(names) != 1 || names[0] != podspec.LinkSecretName(b.session(), "other") {
		t.Errorf("link Secrets %q", names)
	}
	b.step()
	b.start()
	b.until("Ready=True/Running")
}

// A pod whose creation was not confirmed is the one that was wanted.
func TestThePodWasCreatedAndTheAnswerLost(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.beforePod(func(pod *corev1.Pod) error {
		b.create(pod.DeepCopy())
		return nil
	})
	b.step()
	b.start() // needs the Secret that the pod names
	b.until("Ready=True/Running")
}

// A link Secret that was made before the authority changed is not used for a pod made after.
func TestALinkSecretOfAnOlderAuthorityIsMadeAnew(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.beforePod(func(*corev1.Pod) error { return context.DeadlineExceeded })
	b.stepFails()
	c := fake.NewClientBuilder().Build()
	next, err := authority.Ensure(t.Context(), c, c, "elsewhere", authority.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := b.linkSecretNames()
	b.ca, b.r.Authority = next, next
	b.step()
	after := b.linkSecretNames()
	if len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("link Secrets before %q and after %q", before, after)
	}
}

// stepFails reconciles once and expects an error.
func (b *bench) stepFails() {
	b.t.Helper()
	if _, err := b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: b.name}); err == nil {
		b.t.Fatal("the reconcile did not fail")
	}
}

// stuck has a node take the pod and wait for its volumes for longer than it should.
func (b *bench) stuck() {
	b.t.Helper()
	b.bindPod("node-1")
	b.setPod(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
		})
	})
}

func (b *bench) loseLinkSecret() {
	b.t.Helper()
	for _, s := range b.secrets() {
		if err := admin.Delete(b.t.Context(), &s); err != nil {
			b.t.Fatal(err)
		}
	}
}

// A pod whose link Secret was deleted before it started gets it again.
func TestALinkSecretThatWasDeletedBeforeTheStartIsMadeAnew(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	before, pod := b.linkSecretNames(), b.pod().UID
	b.loseLinkSecret()
	b.quiet() // no node has the pod: nothing waits for the Secret
	b.stuck()
	b.restart() // also by an operator that has never seen it
	b.step()
	if after := b.linkSecretNames(); !slices.Equal(before, after) {
		t.Fatalf("link Secrets before %q and after %q", before, after)
	}
	if c := b.conditions(); !strings.Contains(c, "node-1 has not made the volumes") {
		t.Errorf("the conditions do not say what is waited for:\n%s", c)
	}
	b.quiet()
	b.setPod(func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].Status = corev1.ConditionTrue
		}
	})
	b.start()
	b.until("Ready=True/Running")
	if now := b.pod().UID; now != pod {
		t.Errorf("it is another pod, %s", now)
	}
	b.quiet()
}

// Where the Secret is there, something else holds the node up: it is tried once a minute and
// no status is written for it.
func TestALinkSecretThatIsThereIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.stuck()
	before := b.secrets()
	if result := b.step(); result.RequeueAfter < 30*time.Second {
		t.Errorf("looks again after %s: a hot loop", result.RequeueAfter)
	}
	b.quiet()
	after := b.secrets()
	if len(after) != 1 || after[0].UID != before[0].UID {
		t.Errorf("the link Secret was replaced")
	}
	b.forward(2 * time.Minute)
	b.loseLinkSecret()
	b.step()
	if n := len(b.secrets()); n != 1 {
		t.Errorf("%d link Secrets after another minute", n)
	}
}

// A pod that was built for an authority that is gone gets no Secret any more: it is replaced.
func TestAPodOfALostAuthorityThatDoesNotStartIsReplaced(t *testing.T) {
	b := newBench(t)
	b.apply(v1alpha1.ModeReadOnly)
	b.step()
	b.loseLinkSecret()
	b.stuck()
	c := fake.NewClientBuilder().Build()
	next, err := authority.Ensure(t.Context(), c, c, "elsewhere", authority.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := b.pod().UID
	b.ca, b.r.Authority = next, next
	b.step()
	b.losePod()
	b.step()
	if p := b.pod(); p == nil || p.UID == first || len(b.secrets()) != 1 {
		t.Fatalf("the pod was not replaced:\n%s", b.conditions())
	}
}
