// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
