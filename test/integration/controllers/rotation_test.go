// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/config"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/authority"
)

// ownNamespace is another namespace for the operator, in which it has the rights of its own.
func ownNamespace(t *testing.T, name string) {
	t.Helper()
	var own rbacv1.Role
	if err := yaml.UnmarshalStrict(bytes.Split(config.Role, []byte("\n---\n"))[1], &own); err != nil {
		t.Fatal(err)
	}
	own.Namespace = name
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, &own,
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: own.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "operator"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name}},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) authoritySecret(namespace string) *corev1.Secret {
	b.t.Helper()
	var s corev1.Secret
	if err := admin.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: authority.SecretName}, &s); err != nil {
		b.t.Fatal(err)
	}
	return &s
}

// A new certificate authority takes over while a session is switched all the time, over new
// connections and with client certificates that live for seconds. Nothing fails; the pod is
// Outdated; its successor believes the new one; then the old one goes.
func TestTheAuthorityIsReplacedUnderALivingSession(t *testing.T) {
	const namespace = "rotation"
	ownNamespace(t, namespace)
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	c, err := client.New(operator, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if b.ca, err = authority.Ensure(t.Context(), c, c, namespace, authority.Options{Client: 6 * time.Second}); err != nil {
		t.Fatal(err)
	}
	b.managed = func(m ctrl.Manager, r *controllers.SessionReconciler) error {
		return m.Add(&authority.Keeper{
			Authority: b.ca, Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: namespace, Elected: m.Elected(),
			InUse: r.AuthoritiesInUse, Changed: r.LookAgain, Every: 100 * time.Millisecond, Overlap: time.Millisecond,
		})
	}
	b.serve()
	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("there is a pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("it is Ready", func() bool { return b.has("Ready=True/Running") })

	watching, err := client.NewWithWatch(direct, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	modes, n := []v1alpha1.SandboxMode{v1alpha1.ModeWorkspaceWrite, v1alpha1.ModeReadOnly}, 0
	switches := func() {
		t.Helper()
		b.agent.Hangup() // the next switch needs a handshake
		b.patchMode(modes[n%2])
		n++
		s, err := waitFor(t.Context(), watching, b.name, v1alpha1.ConditionModeApplied)
		if err != nil {
			t.Fatalf("switch %d: %v; conditions:\n%s", n, err, b.conditions())
		}
		for _, c := range s.Status.Conditions {
			if c.Type == v1alpha1.ConditionRunnerReady && c.Status != metav1.ConditionTrue {
				t.Errorf("switch %d: %s", n, describe(s.Status.Conditions))
			}
		}
	}
	switches()
	first, pod := b.ca.Hash(), b.pod().UID
	s := b.authoritySecret(namespace)
	s.Annotations = map[string]string{authority.RotateAnnotation: "now"}
	if err := admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.eventually("the pod is outdated", func() bool { return b.has("Outdated=True/InputsChanged") })
	for begin := time.Now(); time.Since(begin) < 5*time.Second; { // past the renewal of the client certificate
		switches()
	}
	if b.pod().UID != pod || !b.ca.Known(first) || b.ca.Hash() == first {
		t.Error("the pod was replaced, or its authority is gone, while it ran")
	}

	b.losePod()
	b.eventually("there is a new pod", func() bool { p := b.pod(); return p != nil && p.UID != pod })
	b.start()
	b.eventually("the new pod is as it should be", func() bool { return b.has("Outdated=False/Current") && b.has("Ready=True/Running") })
	b.eventually("the old authority is gone", func() bool { return len(b.authoritySecret(namespace).Data["previous.key"]) == 0 })
	b.eventually("and is not believed any more", func() bool { return !b.ca.Known(first) })
	switches()
}

// A pod that was started with another certificate authority cannot be spoken with. Status says so
// and what to do, and doing it helps.
func TestAPodThatBelievesAnotherOperator(t *testing.T) {
	b := newBench(t)
	b.persist(v1alpha1.RetentionDelete)
	b.ready(v1alpha1.ModeReadOnly)
	c := fake.NewClientBuilder().Build()
	var err error
	if b.ca, err = authority.Ensure(t.Context(), c, c, "elsewhere", authority.Options{}); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.step()
	b.wants("RunnerReady=False/AuthorityUnknown", "Stalled=True/AuthorityUnknown", "Ready=False/AuthorityUnknown",
		"ModeApplied=False/RunnerUnreachable", "Outdated=True/InputsChanged")
	if n := len(b.agent.Pushes()); n != 1 {
		t.Errorf("the agent was told something %d times", n)
	}
	b.quiet()

	b.losePod()
	b.step()
	b.start()
	b.until("Ready=True/Running")
	b.wants("ModeApplied=True/Applied", "Stalled=False/None", "Outdated=False/Current")
}
