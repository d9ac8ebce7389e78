// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// label sets the ceiling of the bench's namespace; null takes it away.
func (b *bench) label(value string) *corev1.Namespace {
	b.t.Helper()
	n := &corev1.Namespace{}
	n.Name = b.name.Namespace
	p := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"agentsession.dev/max-mode":%s}}}`, value))
	if err := admin.Patch(b.t.Context(), n, p); err != nil {
		b.t.Fatalf("labelling the namespace: %v", err)
	}
	return n
}

func TestTheLabelOfANamespaceNarrowsAndWidens(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeDangerFullAccess)
	n := b.label(`"workspace-write"`)
	b.until("ModeApplied=True/Clamped")
	s := b.session()
	want := v1alpha1.Clamp{Field: "mode", Requested: "danger-full-access", By: v1alpha1.ClampedByNamespace}
	if c := s.Status.Policy.Clamped; len(c) != 1 || c[0] != want || s.Status.Applied.Mode != v1alpha1.ModeWorkspaceWrite {
		t.Errorf("clamped %+v, applied %+v", c, s.Status.Applied)
	}
	if !strings.Contains(b.conditions(), "the label agentsession.dev/max-mode of the namespace") {
		t.Errorf("no condition names the label:\n%s", b.conditions())
	}
	pushes := b.agent.Pushes()
	if stamp := pushes[len(pushes)-1].Stamp; stamp.NamespaceUID != string(n.UID) || stamp.NamespaceVersion != n.ResourceVersion {
		t.Errorf("stamp %+v, want namespace %s at %s", stamp, n.UID, n.ResourceVersion)
	}
	b.quiet()
	b.label("null")
	b.until("ModeApplied=True/Applied")
	if s := b.session(); s.Status.Applied.Mode != v1alpha1.ModeDangerFullAccess || s.Generation != 1 {
		t.Errorf("without the label: applied %+v", s.Status.Applied)
	}
	b.quiet()
}

func TestALabelThatNobodyUnderstandsIsReadOnly(t *testing.T) {
	b := newBench(t)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.label(`"workspace_write"`)
	b.until("ModeApplied=True/Clamped")
	if s := b.session(); s.Status.Applied.Mode != v1alpha1.ModeReadOnly {
		t.Errorf("applied %+v", s.Status.Applied)
	}
	b.label(`""`)
	b.until("ModeApplied=True/Clamped")
	if s := b.session(); s.Status.Applied.Mode != v1alpha1.ModeReadOnly {
		t.Errorf("with an empty label: applied %+v", s.Status.Applied)
	}
}

// What a namespace takes away is clamped, also where the class rejects what exceeds
// its own ceiling: who labels a namespace stops no session in it.
func TestARejectingClassClampsForTheNamespace(t *testing.T) {
	b := newBench(t)
	b.class.Spec.Ceiling.OnExceed = v1alpha1.OnExceedReject
	if err := admin.Update(t.Context(), b.class); err != nil {
		t.Fatal(err)
	}
	b.label(`"read-only"`)
	b.ready(v1alpha1.ModeWorkspaceWrite)
	b.wants("Accepted=True/Accepted", "ModeApplied=True/Clamped")
}

func TestTheManagerWatchesTheLabelsOfNamespaces(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.apply(v1alpha1.ModeWorkspaceWrite)
	b.eventually("there is a pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("the session is ready", func() bool { return b.has("Ready=True/Running") })
	n := b.label(`"nothing"`)
	b.eventually("the label narrows the session", func() bool { return b.has("ModeApplied=True/Clamped") })
	b.eventually("an event tells of the label", func() bool {
		var list eventsv1.EventList
		if err := admin.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == v1alpha1.ReasonUnknownMaxMode && e.Regarding.UID == n.UID {
				return true
			}
		}
		return false
	})
	b.label("null")
	b.eventually("without the label the session is wider", func() bool { return b.has("ModeApplied=True/Applied") })
}
