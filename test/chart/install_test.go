// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

const system = "agentsession-system"

func install(verb ...string) []string {
	args := append(verb, "agentsession", chartDir, "--namespace", system, "--create-namespace", "--wait", "--timeout", "2m")
	return append(args, withModel...)
}

func defaultClass(t *testing.T) *v1alpha1.AgentSessionClass {
	t.Helper()
	c := &v1alpha1.AgentSessionClass{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "standard"}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// The life of a release, in one cluster and in order: a step stands on the one before.
func TestTheLifeOfARelease(t *testing.T) {
	t.Cleanup(availableDeployments(t))
	out := mustHelm(t, install("install")...)
	if !strings.Contains(out, "Sessions use class standard: deepseek-chat at https://api.deepseek.com/v1, at most danger-full-access.") {
		t.Errorf("the notes do not say which class sessions use:\n%s", out)
	}
	installed := defaultClass(t)
	if installed.Annotations[v1alpha1.DefaultClassAnnotation] != "true" {
		t.Error("the class is not marked as the default")
	}
	session := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Name: "stays", Namespace: "default"}}
	if err := api.Create(t.Context(), session); err != nil {
		t.Fatal(err)
	}

	t.Run("installing twice says so", func(t *testing.T) {
		_, err := helm(t.Context(), install("install")...)
		if err == nil || !strings.Contains(err.Error(), "cannot reuse a name that is still in use") {
			t.Errorf("second install: %v", err)
		}
	})
	t.Run("a second release in the cluster is refused whole", func(t *testing.T) {
		_, err := helm(t.Context(), "install", "other", chartDir, "--namespace", "other", "--create-namespace")
		if err == nil || !strings.Contains(err.Error(), "cannot be imported into the current release") {
			t.Errorf("second release: %v", err)
		}
		err = api.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "agentsession-manager"}, &corev1.ServiceAccount{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the refused release left its account behind: %v", err)
		}
	})
	t.Run("who may do what", rights)
	t.Run("who may use what", useOfModes)
	t.Run("what is above a ceiling is said at once", warned)
	for i := range 2 { // the first takes the class over from the hook, the second has it in the release
		t.Run(fmt.Sprintf("upgrade %d changes the class and does not replace it", i+1), func(t *testing.T) {
			mode := []v1alpha1.SandboxMode{v1alpha1.ModeReadOnly, v1alpha1.ModeWorkspaceWrite}[i]
			mustHelm(t, append(install("upgrade", "--install"), "--set", "defaultClass.ceiling.maxMode="+string(mode))...)
			c := defaultClass(t)
			if c.UID != installed.UID {
				t.Error("the class was deleted and made anew")
			}
			if c.Spec.Ceiling.MaxMode != mode {
				t.Errorf("maxMode = %s, want %s", c.Spec.Ceiling.MaxMode, mode)
			}
		})
	}
	t.Run("session pods are sealed where that is wanted", func(t *testing.T) {
		mustHelm(t, append(install("upgrade", "--install"), "--set", "admission.sealPods=true")...)
		sealed(t)
	})
	t.Run("uninstalling leaves sessions and their class", func(t *testing.T) {
		mustHelm(t, "uninstall", "agentsession", "--namespace", system)
		if c := defaultClass(t); c.UID != installed.UID || c.DeletionTimestamp != nil {
			t.Error("the class is gone or going")
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(session), session); err != nil || session.DeletionTimestamp != nil {
			t.Errorf("the session is gone or going: %v", err)
		}
	})
	t.Run("it can be installed again", func(t *testing.T) {
		mustHelm(t, install("install")...)
		defaultClass(t)
		mustHelm(t, "uninstall", "agentsession", "--namespace", system)
	})
}

// rights asks the apiserver what the accounts may do, as it would decide.
func rights(t *testing.T) {
	const manager = "system:serviceaccount:" + system + ":agentsession-manager"
	for name, tc := range map[string]struct {
		user      string
		attribute authorizationv1.ResourceAttributes
		want      bool
	}{
		"the operator makes pods":                      {manager, can("create", "", "pods", "", "team"), true},
		"the operator makes Secrets":                   {manager, can("create", "", "secrets", "", "team"), true},
		"the operator reads no Secret":                 {manager, can("get", "", "secrets", "model-key", "team"), false},
		"the operator lists no Secrets":                {manager, can("list", "", "secrets", "", "team"), false},
		"the operator reads its own authority":         {manager, can("get", "", "secrets", "agentsession-ca", system), true},
		"the operator reads no other Secret beside it": {manager, can("get", "", "secrets", "other", system), false},
		"the operator does not enter pods":             {manager, can("create", "", "pods/exec", "", "team"), false},
		"the operator writes status":                   {manager, can("patch", "agentsession.dev", "agentsessions/status", "", "team"), true},
		"the operator never creates sessions":          {manager, can("create", "agentsession.dev", "agentsessions", "", "team"), false},
		"the operator writes no class":                 {manager, can("patch", "agentsession.dev", "agentsessionclasses", "", ""), false},
		"the operator leads by a lease of its own":     {manager, can("update", "coordination.k8s.io", "leases", "", system), true},
		"the operator takes no other lease":            {manager, can("update", "coordination.k8s.io", "leases", "", "team"), false},
		"the operator writes events":                   {manager, can("create", "events.k8s.io", "events", "", "team"), true},
		"the operator uses no mode":                    {manager, can("use", "agentsession.dev", "agentsessions/read-only", "", "team"), false},
		"somebody without a role sees nothing":         {"nobody", can("get", "agentsession.dev", "agentsessions", "", "team"), false},
	} {
		t.Run(name, func(t *testing.T) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tc.user, ResourceAttributes: &tc.attribute}}
			if err := api.Create(t.Context(), review); err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != tc.want {
				t.Errorf("allowed = %t, want %t", review.Status.Allowed, tc.want)
			}
		})
	}
}

func can(verb, group, resource, name, namespace string) authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name, Namespace: namespace,
	}
}
