// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// warnings are what the apiserver says beside its answers.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.texts = append(w.texts, text)
}

// as is a client of a person, and what the apiserver warns them of.
func as(t *testing.T, user string) (client.Client, *warnings) {
	t.Helper()
	w := &warnings{}
	c := impersonating(user)
	c.WarningHandlerWithContext = w
	person, err := client.New(c, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return person, w
}

func impersonating(user string) *rest.Config {
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return c
}

// people makes a namespace in which ann has the chart's role for users, and bob may write sessions and use what a developer may.
func people(t *testing.T, namespace string) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "developer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"agentsession.dev"}, Resources: []string{"agentsessions"}, Verbs: []string{"get", "create", "update", "patch"}},
		{APIGroups: []string{"agentsession.dev"}, Resources: []string{"agentsessions/read-only", "agentsessions/workspace-write"}, Verbs: []string{"use"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"}, Verbs: []string{"*"}},
	}}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, role}
	for user, r := range map[string]string{"ann": "agentsession-user", "bob": role.Name} {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	for _, o := range objects {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
}

func session(namespace, name string, mode v1alpha1.SandboxMode) *v1alpha1.AgentSession {
	return &v1alpha1.AgentSession{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.AgentSessionSpec{Sandbox: v1alpha1.Sandbox{Mode: mode}},
	}
}

// refused demands that the apiserver refuses with a message.
func refused(t *testing.T, err error, message string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), message) {
		t.Errorf("the answer is %v, want a refusal that says %q", err, message)
	}
}

func allowed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("refused: %v", err)
	}
}

// soon repeats what has no effect until the apiserver has taken up a new policy or right.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 300 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("not in 30 s: %s", what)
}

// effective waits until the policies hold for bob: what he may do is refused him before.
func effective(t *testing.T, bob client.Client, namespace string) {
	t.Helper()
	soon(t, "the policy holds", func() bool {
		s := session(namespace, "early", v1alpha1.ModeDangerFullAccess)
		return apierrors.IsInvalid(bob.Create(t.Context(), s, client.DryRunAll)) || apierrors.IsForbidden(bob.Create(t.Context(), s, client.DryRunAll))
	})
	soon(t, "the rights hold", func() bool {
		return bob.Create(t.Context(), session(namespace, "early", v1alpha1.ModeReadOnly), client.DryRunAll) == nil
	})
}

func useOfModes(t *testing.T) {
	const namespace = "use"
	people(t, namespace)
	bob, _ := as(t, "bob")
	ann, _ := as(t, "ann")
	effective(t, bob, namespace)
	ctx := t.Context()

	t.Run("a mode that is not his", func(t *testing.T) {
		refused(t, bob.Create(ctx, session(namespace, "no", v1alpha1.ModeDangerFullAccess)),
			"you may not use mode danger-full-access in namespace use: it takes the verb use on agentsessions/danger-full-access (kubectl auth can-i use agentsessions --subresource=danger-full-access -n use)")
	})
	s := session(namespace, "mine", v1alpha1.ModeReadOnly)
	allowed(t, bob.Create(ctx, s))
	patch := func(c client.Client, change func()) error {
		before := s.DeepCopy()
		change()
		return c.Patch(ctx, s, client.MergeFrom(before))
	}
	mode := func(m v1alpha1.SandboxMode) func() { return func() { s.Spec.Sandbox.Mode = m } }
	t.Run("a session grows only by who may", func(t *testing.T) {
		allowed(t, patch(bob, mode(v1alpha1.ModeWorkspaceWrite)))
		refused(t, patch(bob, mode(v1alpha1.ModeDangerFullAccess)), "you may not use mode danger-full-access")
		allowed(t, patch(ann, mode(v1alpha1.ModeDangerFullAccess)))
	})
	t.Run("what is not widened needs no right", func(t *testing.T) {
		allowed(t, patch(bob, func() { s.Spec.Suspend = true }))
		allowed(t, patch(bob, mode(v1alpha1.ModeReadOnly)))
	})
	t.Run("the network", func(t *testing.T) {
		open := func() { s.Spec.Sandbox.Network = v1alpha1.NetworkOpen }
		refused(t, patch(bob, open), "you may not use network open in namespace use")
		allowed(t, patch(ann, open))
		allowed(t, patch(bob, func() { s.Spec.Suspend = false }))
		allowed(t, patch(bob, func() { s.Spec.Sandbox.Network = v1alpha1.NetworkNone }))
	})
	t.Run("a class by name", func(t *testing.T) {
		named := session(namespace, "named", v1alpha1.ModeReadOnly)
		named.Spec.ClassName = "standard"
		refused(t, bob.Create(ctx, named), "you may not use class standard: it takes the verb use on agentsessionclasses/standard")
	})
	t.Run("nobody writes in another's name", func(t *testing.T) {
		message := func(author string) *v1alpha1.SessionMessage {
			return &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", Namespace: namespace},
				Spec: v1alpha1.SessionMessageSpec{SessionName: "mine", Content: "Go on.", Author: author}}
		}
		refused(t, ann.Create(ctx, message("bob")), "author must be you, ann: leave it out, or write that name")
		allowed(t, ann.Create(ctx, message("ann")))
		soon(t, "where nobody is named, the writer is filled in", func() bool {
			m := message("") // for some seconds after its kind was made, the apiserver says that it does not know it
			return ann.Create(ctx, m) == nil && m.Spec.Author == "ann"
		})
	})
}

func warned(t *testing.T) {
	const namespace = "warned"
	people(t, namespace)
	ann, said := as(t, "ann")
	ctx := t.Context()
	ns := &corev1.Namespace{}
	label := func(value string) {
		t.Helper()
		if err := api.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
			t.Fatal(err)
		}
		ns.Labels["agentsession.dev/max-mode"] = value
		if err := api.Update(ctx, ns); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, label string
		mode        v1alpha1.SandboxMode
		network     v1alpha1.NetworkAccess
		want        string
	}{
		{name: "within", mode: v1alpha1.ModeDangerFullAccess},
		{name: "above the class", network: v1alpha1.NetworkOpen,
			want: "network open is above none, the ceiling of class standard: it will run with no more than that"},
		{name: "above the namespace", label: "workspace-write", mode: v1alpha1.ModeDangerFullAccess,
			want: "mode danger-full-access is above the ceiling of namespace warned (label agentsession.dev/max-mode=workspace-write)"},
		{name: "at the namespace", label: "workspace-write", mode: v1alpha1.ModeWorkspaceWrite},
		{name: "under a label that is no mode", label: "everything", mode: v1alpha1.ModeWorkspaceWrite,
			want: "mode workspace-write is above the ceiling of namespace warned (label agentsession.dev/max-mode=everything)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.label != "" {
				label(tc.label)
			}
			s := session(namespace, "some", tc.mode)
			s.Spec.Sandbox.Network = tc.network
			var got string
			soon(t, "the warnings are "+tc.want, func() bool {
				said.texts = nil
				if err := ann.Create(ctx, s.DeepCopy(), client.DryRunAll); err != nil {
					t.Fatal(err)
				}
				got = strings.Join(said.texts, "\n")
				return tc.want == "" && got == "" || tc.want != "" && strings.Contains(got, tc.want)
			})
		})
	}
}

// sealed pods are entered by nobody; other pods of the namespace are.
func sealed(t *testing.T) {
	const namespace = "sealed"
	people(t, namespace)
	bob, _ := as(t, "bob")
	ctx := t.Context()
	pod := func(name string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		soon(t, "pods are admitted", func() bool { return api.Create(ctx, p) == nil })
		return p
	}
	ofSession := pod("session", map[string]string{"app.kubernetes.io/managed-by": "agentsession-operator", "app.kubernetes.io/component": "runner"})
	other := pod("other", nil)
	entering, err := kubernetes.NewForConfig(impersonating("bob"))
	if err != nil {
		t.Fatal(err)
	}
	const message = "pod session runs a session: nobody enters or changes it"
	enter := func(p *corev1.Pod) error { // the answer for a pod that has no node is another one, and comes later
		return entering.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(p.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: "c", Command: []string{"sh"}, Stdout: true}, scheme.ParameterCodec).Do(ctx).Error()
	}
	label := func(p *corev1.Pod) error {
		before := p.DeepCopy()
		p.Labels = map[string]string{"mine": "now"}
		return bob.Patch(ctx, p, client.MergeFrom(before), client.DryRunAll)
	}
	soon(t, "the policy holds", func() bool {
		err := label(ofSession.DeepCopy())
		return err != nil && strings.Contains(err.Error(), message)
	})
	refused(t, enter(ofSession), message)
	allowed(t, label(other))
	if err := enter(other); err == nil || strings.Contains(err.Error(), "runs a session") {
		t.Errorf("entering another pod: %v", err)
	}
}
