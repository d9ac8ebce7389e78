// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// Whatever breaks: every session ends where its spec says, no message is lost or answered
// twice, no command runs twice, nothing is written after read-only was confirmed, and the model
// was asked nothing that no log has.
func TestChaos(t *testing.T) {
	t.Logf("seed %d, for %s", *seed, *duration)
	t.Cleanup(func() { // where something failed, it can be looked at until the next run
		if !t.Failed() {
			_, _ = kube.Kubectl(context.WithoutCancel(t.Context()), "delete", "namespace", namespace, "--wait", "--timeout=90s")
		}
	})
	random := rand.New(rand.NewPCG(uint64(*seed), 0))
	dir := t.TempDir()
	sessions := []*session{
		create(t, dir, "claim-a", true), create(t, dir, "claim-b", true), create(t, dir, "claim-c", true),
		create(t, dir, "empty-a", false), create(t, dir, "empty-b", false),
	}
	victim := create(t, dir, "victim", false)
	all := append(slices.Clip(sessions), victim)
	for _, s := range all {
		s.settle(t)
	}

	t.Cleanup(func() { // whatever happened here: the cluster is others' too
		if err := up(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	observer, observed := observe(watching, t)
	ledger, written := keepLedger(watching, t)

	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	var working sync.WaitGroup
	for _, s := range all {
		private := rand.New(rand.NewPCG(random.Uint64(), 0))
		working.Go(func() { s.work(ctx, t, private) })
	}
	ended, private := 0, rand.New(rand.NewPCG(random.Uint64(), 0))
	working.Go(func() { ended = endAll(ctx, t, private) })
	wreak(t, ctx, random, slices.Clone(sessions))
	working.Wait()

	if err := up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.checkMessages(t, observer)
		s.settle(t)
	}
	evict(t, victim)
	victim.settle(t)
	victim.checkMessages(t, observer)
	suspendAndResume(t, sessions[0])

	var accounts []*account
	for _, s := range sessions {
		accounts = append(accounts, s.checkLog(t, observer))
	}
	stopWatching()
	observed()
	written()
	observer.checkRemoved()
	ledger.check(t, accounts, ended+1)
	checkProofs(t, all, accounts)
}

// evict fills the EmptyDir of a session: the kubelet ends its pod, and with it the session, for
// good. A message that comes then is told so.
func evict(t *testing.T, s *session) {
	t.Helper()
	got, err := s.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.ended = true
	// tools-rw writes more than the volume may have.
	if out, err := kube.Kubectl(t.Context(), "-n", namespace, "exec", got.Status.PodName, "-c", "tools-rw", "--",
		"dd", "if=/dev/zero", "of=/workspace/ballast", "bs=1M", "count=200"); err != nil {
		t.Logf("filling the volume: %v %s", err, out)
	}
	s.settle(t)
	if err := s.send(t.Context(), s.name+"-too-late"); err != nil {
		t.Fatal(err)
	}
}

// suspendAndResume leaves a session without a pod, as its spec says, and takes it back.
func suspendAndResume(t *testing.T, s *session) {
	t.Helper()
	if _, err := s.patch(t.Context(), `{"spec":{"suspend":true}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, s.name+" is suspended", func() (bool, string) {
		got, err := s.get(t.Context())
		if err != nil {
			return false, err.Error()
		}
		ready := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == "True" && ready.Reason == v1alpha1.ReasonSuspended && got.Status.PodName == "", ready.Reason
	})
	if _, err := s.patch(t.Context(), `{"spec":{"suspend":false}}`); err != nil {
		t.Fatal(err)
	}
	s.settle(t)
}

// checkProofs checks that commands and narrowings were put to the test at all.
func checkProofs(t *testing.T, sessions []*session, accounts []*account) {
	t.Helper()
	n, succeeded := 0, 0
	for _, a := range accounts {
		succeeded += a.succeeded
	}
	if succeeded == 0 {
		t.Error("no command of any session has succeeded")
	}
	for _, s := range sessions {
		n += s.proofs
	}
	if n == 0 {
		t.Error("no narrowing was confirmed in time to be tested")
	}
}
