// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// session is one session and what was asked of it.
type session struct {
	name  string
	disk  string            // of its volume on this machine; "" for an EmptyDir
	sent  map[string]string // messages: the name of each UID
	mode  string            // the newest that was asked
	ended bool              // it is expected to end: its storage was lost

	narrow narrowed
	proofs int // narrowings that were proved to hold
}

// narrowed is what a workspace held when read-only was confirmed. Until somebody asks for
// more, nothing may be added.
type narrowed struct{ workspace, marks string }

// create makes the session, and where it is to have a volume of its own, that.
func create(t *testing.T, dir, name string, persistent bool) *session {
	t.Helper()
	s := &session{name: name, mode: "workspace-write", sent: map[string]string{}}
	storage := fmt.Sprintf("{type: EmptyDir, size: %dMi}", volumeMiB)
	if persistent {
		mountVolume(t, s, dir)
		storage = fmt.Sprintf("{type: PersistentVolumeClaim, storageClassName: chaos-%s, size: %dMi}", name, volumeMiB)
	}
	apply(t, manifest(name, "sandbox: {mode: "+s.mode+"}, workspace: {storage: "+storage+"}"))
	return s
}

// manifest is a session with a spec in YAML's flow style.
func manifest(name, spec string) string {
	return fmt.Sprintf("apiVersion: agentsession.dev/v1alpha1\nkind: AgentSession\nmetadata: {name: %s, namespace: %s}\nspec: {className: %s, %s}\n",
		name, namespace, namespace, spec)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := kube.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

// work sends messages and switches modes until ctx ends. What was begun is brought to its
// end, however long the apiserver is away.
func (s *session) work(ctx context.Context, t *testing.T, random *rand.Rand) {
	for ctx.Err() == nil {
		if random.IntN(3) == 0 {
			s.switchTo(ctx, t, []string{"read-only", "workspace-write", "danger-full-access"}[random.IntN(3)])
		} else if err := s.send(context.WithoutCancel(ctx), fmt.Sprintf("%s-%d", s.name, len(s.sent)+1)); err != nil {
			t.Errorf("sending a message to %s: %v", s.name, err)
		}
		sleep(ctx, time.Duration(500+random.IntN(4000))*time.Millisecond)
	}
	s.stillNarrow(t)
}

func (s *session) send(ctx context.Context, name string) error {
	m, err := send(ctx, s.name, name)
	if err == nil {
		s.sent[string(m.UID)] = name
	}
	return err
}

// send creates a message, once.
func send(ctx context.Context, session, name string) (*v1alpha1.SessionMessage, error) {
	m := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.SessionName, m.Spec.Content = session, "chaos "+name
	return m, insist(ctx, func() error {
		err := api.Create(ctx, m)
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
			return api.Get(ctx, client.ObjectKeyFromObject(m), m)
		}
		return err
	})
}

// switchTo asks for another mode. Of read-only, once it is confirmed, it is remembered what
// there is.
func (s *session) switchTo(ctx context.Context, t *testing.T, mode string) {
	s.stillNarrow(t)
	s.narrow, s.mode = narrowed{}, mode
	generation, err := s.patch(context.WithoutCancel(ctx), fmt.Sprintf(`{"spec":{"sandbox":{"mode":%q}}}`, mode))
	if err != nil {
		t.Errorf("switching %s to %s: %v", s.name, mode, err)
	}
	if err != nil || mode != "read-only" {
		return
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		got, err := s.get(ctx)
		if err != nil || got.Status.Applied == nil || got.Status.Applied.Generation < generation ||
			!cluster.Is(got, v1alpha1.ConditionModeApplied, metav1.ConditionTrue) {
			continue
		}
		if workspace := s.workspaceOf(ctx); workspace != "" {
			before, err := marks(workspace)
			if err != nil {
				t.Errorf("reading the workspace of %s: %v", s.name, err)
			}
			s.narrow = narrowed{workspace, before}
		}
		return
	}
}

// stillNarrow checks that nothing was written since read-only was confirmed.
func (s *session) stillNarrow(t *testing.T) {
	if s.narrow.workspace == "" {
		return
	}
	switch now, err := marks(s.narrow.workspace); {
	case err != nil:
		t.Errorf("reading the workspace of %s: %v", s.name, err)
	case now != s.narrow.marks:
		t.Errorf("%s was confirmed to be read-only, and then its workspace went from %d bytes to %d", s.name, len(s.narrow.marks), len(now))
	default:
		s.proofs++
	}
}

// patch patches the session however long it takes, and returns the generation that it has then.
func (s *session) patch(ctx context.Context, patch string) (generation int64, err error) {
	o := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}
	err = insist(ctx, func() error { return api.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch))) })
	return o.Generation, err
}

func (s *session) get(ctx context.Context) (*v1alpha1.AgentSession, error) {
	var got v1alpha1.AgentSession
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.name}, &got)
	return &got, err
}

// settle waits until the session is where its spec says.
func (s *session) settle(t *testing.T) {
	t.Helper()
	eventually(t, "session "+s.name+" is where its spec says", func() (bool, string) {
		got, err := s.get(t.Context())
		if err != nil {
			return false, err.Error()
		}
		if s.ended {
			c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionCompleted)
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonStateLost, fmt.Sprintf("%+v", got.Status)
		}
		trouble := s.notAsSpecified(got)
		return trouble == "", fmt.Sprintf("%s; %+v", trouble, got.Status)
	})
}

// running are the conditions of a session that runs and has nothing to do.
var running = map[string]string{
	v1alpha1.ConditionReady:              "True Running",
	v1alpha1.ConditionAccepted:           "True Accepted",
	v1alpha1.ConditionRunnerReady:        "True RunnerReady",
	v1alpha1.ConditionEnforced:           "True Enforced",
	v1alpha1.ConditionModeApplied:        "True Applied",
	v1alpha1.ConditionActive:             "False WaitingForInput",
	v1alpha1.ConditionWaitingForApproval: "False NonePending",
	v1alpha1.ConditionSuspended:          "False NotRequested",
	v1alpha1.ConditionOutdated:           "False Current",
	v1alpha1.ConditionCompleted:          "False Running",
	v1alpha1.ConditionStalled:            "False None",
}

// notAsSpecified says what of a session that is to run is not as its spec says.
func (s *session) notAsSpecified(got *v1alpha1.AgentSession) string {
	for _, c := range got.Status.Conditions {
		if have, want := string(c.Status)+" "+c.Reason, running[c.Type]; have != want || c.ObservedGeneration != got.Generation {
			return fmt.Sprintf("%s is %s for generation %d, want %s for %d", c.Type, have, c.ObservedGeneration, want, got.Generation)
		}
	}
	p, a := got.Status.Policy, got.Status.Applied
	switch {
	case len(got.Status.Conditions) != len(running):
		return "conditions are missing"
	case got.Status.ObservedGeneration != got.Generation:
		return "its generation is not observed"
	case string(got.Spec.Sandbox.Mode) != s.mode:
		return "its spec is not what was asked for last, " + s.mode
	case p == nil || a == nil || string(p.Mode) != s.mode || string(a.Mode) != s.mode || a.Digest != p.Digest || a.Generation != got.Generation:
		return fmt.Sprintf("the policy is %+v, applied is %+v", p, a)
	case got.Status.Activity == nil || got.Status.Activity.State != v1alpha1.ActivityIdle || got.Status.Activity.Turns != int64(len(s.sent)):
		return fmt.Sprintf("its activity is %+v, want %d turns", got.Status.Activity, len(s.sent))
	}
	return ""
}

// checkMessages checks that each message has been answered, also those that were pruned since.
func (s *session) checkMessages(t *testing.T, o *observer) {
	t.Helper()
	for uid, name := range s.sent {
		eventually(t, "message "+name+" is answered", func() (bool, string) {
			m := o.message(uid)
			if m == nil {
				return false, "nobody has seen it"
			}
			if s.ended { // answered before, or given up
				d, a := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDelivered), meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAnswered)
				over := d != nil && d.Reason == v1alpha1.ReasonSessionCompleted || a != nil && a.Reason == v1alpha1.ReasonSessionCompleted
				return over || a != nil && a.Reason == v1alpha1.ReasonAnswered, fmt.Sprintf("%+v", m.Status)
			}
			c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAnswered)
			return c != nil && c.Reason == v1alpha1.ReasonAnswered && m.Status.Reply == "done" && m.Status.Turn > 0 && m.Status.Sequence > 0, fmt.Sprintf("%+v", m.Status)
		})
	}
}
