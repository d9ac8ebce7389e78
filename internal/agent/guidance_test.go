// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/toolsocket/supervisortest"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// How to ask for more is said where asking can succeed, and nowhere else.
func TestGuidanceOnlyWhereItCanSucceed(t *testing.T) {
	const both = `sandbox_permissions "workspace-write" or "danger-full-access" (the narrowest`
	denied := wire.Exited{Cause: wire.Finished, Status: 1, Denial: wire.DeniedWrite, Detail: "no"}
	write := chatCall{"c1", "write", `{"path":"f","content":"a"}`}
	never, capped, top, low := asks, asks, asks, asks
	never.Approval = policy.ApprovalNever
	capped.Ceiling.Mode = policy.WorkspaceWrite
	top.Mode = policy.DangerFullAccess
	low.Mode, low.Ceiling.Mode = policy.WorkspaceWrite, policy.WorkspaceWrite
	for name, tc := range map[string]struct {
		policy policy.Policy
		level  wire.Level
		call   chatCall
		exited wire.Exited
		output string
		want   string // "": none
		final  bool
	}{
		"a denial":                          {policy: asks, call: write, exited: denied, want: both},
		"a command that looks denied":       {policy: asks, call: bash("c1", "touch f"), exited: wire.Exited{Cause: wire.Finished, Status: 1}, output: "Permission denied", want: both},
		"a command that failed":             {policy: asks, call: bash("c1", "false"), exited: wire.Exited{Cause: wire.Finished, Status: 1}},
		"under never":                       {policy: never, call: write, exited: denied, final: true},
		"a guess under never":               {policy: never, call: bash("c1", "touch f"), exited: wire.Exited{Cause: wire.Finished, Status: 1}, output: "Permission denied", final: true},
		"a ceiling":                         {policy: capped, call: write, exited: denied, want: `sandbox_permissions "workspace-write" and`},
		"nothing is wider":                  {policy: top, call: write, exited: denied},
		"nothing wider may be":              {policy: low, call: write, exited: denied},
		"a denial to read":                  {policy: asks, call: write, exited: wire.Exited{Cause: wire.Finished, Status: 1, Denial: wire.DeniedRead, Detail: "no"}},
		"a tool that cannot ask":            {policy: asks, call: chatCall{"c1", "read", `{"path":"f"}`}, exited: denied},
		"a node that enforces nothing else": {policy: asks, level: wire.LevelMount, call: write, exited: denied},
		"too long to be shown":              {policy: asks, call: bash("c1", "touch "+strings.Repeat("f", 9000)), exited: wire.Exited{Cause: wire.Finished, Status: 1}, output: "Permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, once(tc.call))
			s := start(t, model, func(_ context.Context, _ wire.Start, write func([]byte)) wire.Exited {
				write([]byte(tc.output))
				return tc.exited
			}, func(s *session) {
				for _, sup := range []*supervisortest.Supervisor{s.ro, s.rw} {
					sup.Level = tc.level
				}
				s.desired.Config.MinimumLevel = wire.LevelMount
			})
			s.applyPolicy(tc.policy)
			s.say("m1", "go")
			got := model.results()[0]
			if says := strings.Contains(got, "sandbox_permissions"); says != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("the result is %q, want guidance %q", got, tc.want)
			}
			if says := strings.Contains(got, "this is final"); says != tc.final {
				t.Errorf("the result is %q, want final %v", got, tc.final)
			}
		})
	}
}

// A call that asks for what it cannot get is refused with the reason, before anybody is asked.
func TestRequestsThatAreRefused(t *testing.T) {
	never, capped := asks, asks
	never.Approval = policy.ApprovalNever
	capped.Ceiling.Mode = policy.WorkspaceWrite
	write := policy.Policy{Mode: policy.WorkspaceWrite, Approval: policy.ApprovalAsk, Ceiling: policy.Unbounded}
	for name, tc := range map[string]struct {
		policy policy.Policy
		level  wire.Level
		call   chatCall
		want   string
	}{
		"under never":          {policy: never, call: wants("c1", "ls", policy.WorkspaceWrite), want: textNobody},
		"above the ceiling":    {policy: capped, call: wants("c1", "ls", policy.DangerFullAccess), want: "danger-full-access is above what this session may be given, which is workspace-write at most"},
		"no wider":             {policy: write, call: wants("c1", "ls", policy.WorkspaceWrite), want: "workspace-write is no wider than the standing mode, workspace-write"},
		"beyond the node":      {policy: asks, level: wire.LevelMount, call: wants("c1", "ls", policy.WorkspaceWrite), want: "the node cannot enforce workspace-write"},
		"too long":             {policy: asks, call: wants("c1", "ls "+strings.Repeat("f", 9000), policy.WorkspaceWrite), want: textTooLong},
		"by a tool that reads": {policy: asks, call: chatCall{"c1", "read", `{"path":"f","sandbox_permissions":"workspace-write","justification":"x"}`}, want: "sandbox_permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			model := newEndpoint(t, once(tc.call))
			s := start(t, model, needsWrite, func(s *session) {
				for _, sup := range []*supervisortest.Supervisor{s.ro, s.rw} {
					sup.Level = tc.level
				}
				s.desired.Config.MinimumLevel = wire.LevelMount
			})
			s.applyPolicy(tc.policy)
			s.say("m1", "go")
			if got := model.results()[0]; !strings.Contains(got, tc.want) {
				t.Errorf("the result is %q, want %q", got, tc.want)
			}
			if n := len(s.ro.Starts()) + len(s.rw.Starts()); n != 0 {
				t.Errorf("%d calls ran", n)
			}
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
			for _, e := range s.events() {
				if e.Type == eventlog.TypeApprovalRequested {
					t.Error("a person was asked")
				}
			}
		})
	}
}

// What was asked for under one policy is not put to a person under another.
func TestARequestFromBeforeAChange(t *testing.T) {
	hold := make(chan struct{})
	model := newEndpoint(t, func(n int, r chatRequest) reply {
		if n == 1 {
			return reply{calls: []chatCall{wants("c1", "ls", policy.DangerFullAccess)}, hold: hold}
		}
		return reply{text: "done"}
	})
	s := start(t, model, needsWrite)
	s.applyPolicy(asks)
	s.send("m1", "go")
	model.awaitRequest(1)
	wider := asks
	wider.Mode = policy.WorkspaceWrite
	s.applyPolicy(wider)
	close(hold)
	s.answered("m1")
	if got := model.results(); got[0] != textChanged {
		t.Errorf("results %q", got)
	}
}

// A turn asks so often and no more; the next one may again.
func TestATurnAsksOnlySoOften(t *testing.T) {
	model := newEndpoint(t, func(_ int, r chatRequest) reply {
		if strings.Contains(r.lastSaid().Content, textAsks) {
			return reply{text: "done"}
		}
		return reply{calls: []chatCall{wants("c1", "ls", policy.WorkspaceWrite)}}
	})
	s := start(t, model, needsWrite)
	s.applyPolicy(asks)
	for _, uid := range []string{"m1", "m2"} {
		s.send(uid, "go")
		for range maxAsks {
			a := s.pending()
			s.desired.Decisions = []wire.Decision{{CallID: a.CallID, Digest: a.Digest, Decision: wire.Denied}}
			s.decide()
			s.await("it is decided", func(o wire.Observed) bool { return len(o.Approvals) == 0 || o.Approvals[0].CallID != a.CallID })
		}
		s.answered(uid)
	}
}
