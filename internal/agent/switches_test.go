// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/replaymodel"
)

// maxSnapshotTokens is what a switch may cost, in tokens of four bytes.
const maxSnapshotTokens = 120

const switchesScript = `
version: 1
rules:
- when: {lastUser: work, toolResults: 0}
  reply:
    text: I look.
    toolCalls:
    - {name: read, arguments: {path: a}}
    - {name: bash, arguments: {command: ls}}
- when: {}
  reply: {text: "Done."}
`

// Random switches of mode, network and approval, while idle, during requests and during calls: the header's
// bytes stay, the prefix that the model has cached never gets shorter, each request begins with all that was
// sent before it, and what a switch adds is one small snapshot. SWITCHES says how many.
func TestSwitchesKeepTheCache(t *testing.T) {
	switches := 100
	if s := os.Getenv("SWITCHES"); s != "" {
		var err error
		if switches, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	script, err := replaymodel.Parse([]byte(switchesScript))
	if err != nil {
		t.Fatal(err)
	}
	for _, provider := range model.Providers() {
		t.Run(provider, func(t *testing.T) {
			replay := replaymodel.New(script, replaymodel.WithLimits(replaymodel.Limits{Requests: 1 << 20, Bytes: 4 << 30, Blocks: 1 << 24}))
			server := &endpoint{Server: httptest.NewServer(replay)}
			t.Cleanup(server.Close)
			s := start(t, server, echo("some output\n", 0))
			s.desired.Config.Model.Provider = provider
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			s.switchAtRandom(rand.New(rand.NewPCG(seed, 0)), switches)
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			checkAccount(t, replay.Requests(), switches)
		})
	}
}

// switchAtRandom switches so often, and now and then gives the session something to do meanwhile.
func (s *session) switchAtRandom(random *rand.Rand, switches int) {
	s.t.Helper()
	s.switchTo(policy.ReadOnly)
	s.say("first", "hello")
	last := "first"
	for i := range switches {
		p := policy.Policy{
			Mode: policy.Modes()[random.IntN(3)], Network: policy.Network(random.IntN(2)), Approval: policy.Approval(random.IntN(2)),
			Ceiling: policy.Unbounded,
		}
		s.desired.Policy = string(policy.Encode(p).Bytes)
		s.desired.Stamp.SessionGeneration++
		if _, _, err := s.SetDesired(s.t.Context(), s.desired); err != nil {
			s.t.Fatal(err)
		}
		if random.IntN(3) == 0 {
			s.answered(last) // one at a time: the controller, too, repeats what is not answered yet
			s.desired.Messages = nil
			last = fmt.Sprintf("m%d", i)
			s.send(last, []string{"work", "hello"}[random.IntN(2)])
		}
	}
	s.answered(last)
	s.say("last", "hello")
}

func checkAccount(t *testing.T, requests []replaymodel.Record, switches int) {
	t.Helper()
	if len(requests) < switches/4 {
		t.Fatalf("only %d requests among %d switches", len(requests), switches)
	}
	snapshots, sent := 0, 0
	for i, r := range requests {
		if r.Status != 200 || r.HeaderDigest != requests[0].HeaderDigest || r.Conversation != requests[0].Conversation {
			t.Fatalf("request %d of conversation %s has the header %s and status %d (%s), the first has %s in %s",
				r.N, r.Conversation, r.HeaderDigest, r.Status, r.Error, requests[0].HeaderDigest, requests[0].Conversation)
		}
		if i == 0 {
			sent = r.PromptBytes
			continue
		}
		before := requests[i-1]
		if r.CachedTokens < before.CachedTokens {
			t.Errorf("the cached prefix shrinks from %d to %d tokens at request %d", before.CachedTokens, r.CachedTokens, r.N)
		}
		if r.CommonPrefixBytes != sent {
			t.Errorf("request %d begins with %d of the %d bytes that were sent before", r.N, r.CommonPrefixBytes, sent)
		}
		sent = r.PromptBytes
		fresh := 0
		for _, m := range r.NewMessages {
			if m.Kind != "snapshot" {
				continue
			}
			if fresh++; (m.Bytes+3)/4 >= maxSnapshotTokens {
				t.Errorf("request %d: a snapshot of %d bytes is %d tokens, want fewer than %d", r.N, m.Bytes, (m.Bytes+3)/4, maxSnapshotTokens)
			}
		}
		if snapshots += fresh; fresh > 1 {
			t.Errorf("request %d carries %d new snapshots", r.N, fresh)
		}
	}
	if snapshots < len(requests)/8 {
		t.Errorf("%d requests tell of %d switches only", len(requests), snapshots)
	}
	last := requests[len(requests)-1]
	t.Logf("%d switches, %d requests, %d snapshots; the last prompt has %d tokens, %d of them cached", switches, len(requests), snapshots, last.PromptTokens, last.CachedTokens)
}

// The snapshot of every policy that there is is small.
func TestSnapshotsAreSmall(t *testing.T) {
	for _, m := range policy.Modes() {
		for n := range 2 {
			for a := range 2 {
				text := policy.Snapshot(policy.Contributions(policy.Policy{Mode: m, Network: policy.Network(n), Approval: policy.Approval(a), Ceiling: policy.Unbounded}, "/workspace"))
				if tokens := (len(text) + 3) / 4; tokens >= maxSnapshotTokens {
					t.Errorf("the snapshot of %s has %d tokens, want fewer than %d", m, tokens, maxSnapshotTokens)
				}
			}
		}
	}
}
