// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// Whatever breaks: every session ends where its spec says, no message is lost or answered
// twice, no command runs twice, and the model was asked nothing that no log has.
func TestChaos(t *testing.T) {
	t.Logf("seed %d, for %s", *seed, *duration)
	random := rand.New(rand.NewPCG(uint64(*seed), 0))
	dir := t.TempDir()
	sessions := []*session{
		create(t, dir, "claim-a", true), create(t, dir, "claim-b", true), create(t, dir, "claim-c", true),
		create(t, dir, "empty-a", false), create(t, dir, "empty-b", false),
	}
	victim := create(t, dir, "victim", false)
	for _, s := range append(sessions, victim) {
		s.settle(t)
	}

	t.Cleanup(func() { // whatever happened here: the cluster is others' too
		if err := up(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	var working sync.WaitGroup
	for _, s := range append(sessions, victim) {
		private := rand.New(rand.NewPCG(random.Uint64(), 0))
		working.Go(func() { s.work(ctx, private) })
	}
	done := wreak(t, ctx, random, sessions)
	working.Wait()
	for _, h := range havocs() {
		t.Logf("%-20s %d times", h.name, done[h.name])
	}

	if err := up(t.Context()); err != nil {
		t.Fatal(err)
	}
	victim.settle(t)
	evict(t, victim)
	logged := map[string]bool{}
	for _, s := range append(sessions, victim) {
		s.settle(t)
		for digest := range s.checkMessages(t) {
			logged[digest] = true
		}
	}
	checkModel(t, logged)
}

// evict fills the EmptyDir of a session: the kubelet ends its pod, and with it the session, for
// good.
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
}

// checkModel checks that of no conversation the model was asked what the log has not. The
// victim's log is gone, and with it all of its conversation.
func checkModel(t *testing.T, logged map[string]bool) {
	t.Helper()
	out, err := kube.Kubectl(t.Context(), "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/replay-model:8080/proxy/requests")
	if err != nil {
		t.Fatal(err)
	}
	var records []struct {
		N                        int
		BodyDigest, Conversation string
	}
	if err := json.Unmarshal([]byte(out), &records); err != nil {
		t.Fatalf("the model's account: %v: %.200s", err, out)
	}
	known, unknown := map[string]int{}, map[string]int{}
	for _, r := range records {
		if logged[strings.TrimPrefix(r.BodyDigest, "sha256:")] {
			known[r.Conversation]++
		} else {
			unknown[r.Conversation]++
		}
	}
	t.Logf("the model remembers %d requests: by conversation %v in logs, %v in a log that is gone", len(records), known, unknown)
	for c, n := range unknown {
		if known[c] > 0 {
			t.Errorf("the model was asked %d times in conversation %s what no log has", n, c)
		}
	}
	if len(known) == 0 {
		t.Error("the model was never asked")
	}
}
