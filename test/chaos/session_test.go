// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// session is one session and what was asked of it.
type session struct {
	name  string
	disk  string // of its volume on this machine; "" for an EmptyDir
	sent  []string
	mode  string // the newest that was asked
	ended bool   // it is expected to end: its storage was lost
}

// volumeMiB is the size of a volume: small enough to be filled.
const volumeMiB = 64

// create makes the session, and where it is to have a volume of its own, that.
func create(t *testing.T, dir, name string, persistent bool) *session {
	t.Helper()
	s := &session{name: name, mode: "workspace-write"}
	storage := "{type: EmptyDir, size: " + fmt.Sprint(volumeMiB) + "Mi}"
	if persistent {
		s.disk = filepath.Join(dir, name)
		if err := os.MkdirAll(s.disk, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", s.disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0777", volumeMiB)); err != nil {
			t.Fatalf("mounting a volume (this needs root): %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(s.disk, syscall.MNT_DETACH) })
		storage = "{type: PersistentVolumeClaim, storageClassName: chaos-" + name + ", size: " + fmt.Sprint(volumeMiB) + "Mi}"
		apply(t, volume(s))
		t.Cleanup(func() {
			_, _ = kube.Kubectl(context.WithoutCancel(t.Context()), "delete", "pv", "chaos-"+name, "--ignore-not-found", "--wait=false")
		})
	}
	apply(t, fmt.Sprintf("apiVersion: agentsession.dev/v1alpha1\nkind: AgentSession\nmetadata: {name: %s, namespace: %s}\n"+
		"spec:\n  className: %s\n  sandbox: {mode: %s}\n  workspace: {storage: %s}\n", name, namespace, namespace, s.mode, storage))
	return s
}

func volume(s *session) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: chaos-%s, labels: {chaos: volume}}
spec:
  capacity: {storage: %dMi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: chaos-%s
  local: {path: %s}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}]
`, s.name, volumeMiB, s.name, s.disk)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := kube.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

// work sends messages and switches modes until ctx ends. What fails is tried again: the
// apiserver goes away now and then.
func (s *session) work(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		switch random.IntN(3) {
		case 0:
			s.mode = []string{"read-only", "workspace-write", "danger-full-access"}[random.IntN(3)]
			patch := fmt.Sprintf(`{"spec":{"sandbox":{"mode":%q}}}`, s.mode)
			insist(ctx, func() error { return s.patch(ctx, patch) })
		default:
			name := fmt.Sprintf("%s-%d", s.name, len(s.sent)+1)
			m := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			m.Spec.SessionName, m.Spec.Content = s.name, "chaos "+name
			s.sent = append(s.sent, name)
			insist(context.WithoutCancel(ctx), func() error { return ignoreExists(api.Create(ctx, m.DeepCopy())) })
		}
		sleep(ctx, time.Duration(500+random.IntN(4000))*time.Millisecond)
	}
}

func (s *session) patch(ctx context.Context, patch string) error {
	o := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}
	return api.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))
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
		completed := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionCompleted)
		if s.ended {
			return completed.Reason == v1alpha1.ReasonStateLost, fmt.Sprintf("%+v", completed)
		}
		a := got.Status.Applied
		ok := cluster.Is(got, v1alpha1.ConditionReady, metav1.ConditionTrue) && cluster.Is(got, v1alpha1.ConditionModeApplied, metav1.ConditionTrue) &&
			a != nil && string(a.Mode) == s.mode
		return ok, fmt.Sprintf("want %s; %+v", s.mode, got.Status)
	})
}

// checkMessages checks that each message was answered, in the agent's log once.
func (s *session) checkMessages(t *testing.T) (requests map[string]bool) {
	t.Helper()
	uids := map[string]string{}
	for _, name := range s.sent {
		eventually(t, "message "+name+" is answered", func() (bool, string) {
			var m v1alpha1.SessionMessage
			if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &m); err != nil {
				return false, err.Error()
			}
			uids[string(m.UID)] = name
			if s.ended { // given up, or answered before
				return meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDelivered) != nil, fmt.Sprintf("%+v", m.Status)
			}
			return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionAnswered), fmt.Sprintf("%+v", m.Status)
		})
	}
	if s.ended {
		return nil // its log is gone
	}
	return s.checkLog(t, uids)
}

// checkLog checks the log's chain, and that it has each message, turn and answer once.
func (s *session) checkLog(t *testing.T, uids map[string]string) (requests map[string]bool) {
	t.Helper()
	agent := func(args ...string) string {
		got, err := s.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out, err := kube.Kubectl(t.Context(), append([]string{"-n", namespace, "exec", got.Status.PodName, "-c", "agent", "--", "/usr/local/bin/agent", "log"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	agent("verify", "/log")
	received, asked, turns := map[string]int{}, map[string]int{}, map[int]int{}
	requests = map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(agent("export", "/log")))
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		var e struct {
			Type string
			Data struct {
				UID, MessageUID, Digest string
				Turn                    int
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("a line of the log: %v", err)
		}
		switch e.Type {
		case "message/received":
			received[e.Data.UID]++
		case "user/message":
			asked[e.Data.MessageUID]++
		case "turn/end":
			turns[e.Data.Turn]++
		case "request/sent":
			requests[e.Data.Digest] = true
		}
	}
	for uid, name := range uids {
		if received[uid] != 1 || asked[uid] != 1 {
			t.Errorf("message %s was received %d times and put to the model %d times", name, received[uid], asked[uid])
		}
	}
	for turn, n := range turns {
		if n != 1 {
			t.Errorf("turn %d of %s ended %d times", turn, s.name, n)
		}
	}
	if len(turns) != len(uids) {
		t.Errorf("%s has had %d turns for %d messages", s.name, len(turns), len(uids))
	}
	s.checkTicks(t)
	return requests
}

// checkTicks checks that no command ran twice.
func (s *session) checkTicks(t *testing.T) {
	t.Helper()
	if s.disk == "" {
		return
	}
	ticks, err := os.ReadFile(filepath.Join(s.disk, "workspace", "ticks"))
	if err != nil {
		t.Errorf("no command of %s has ever run: %v", s.name, err)
	}
	if n := strings.Count(string(ticks), "tick"); n > len(s.sent) {
		t.Errorf("%d commands of %s ran for %d messages", n, s.name, len(s.sent))
	} else {
		t.Logf("%s: %d messages, %d commands had their effect, mode %s at the end", s.name, len(s.sent), n, s.mode)
	}
}
