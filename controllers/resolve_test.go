// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

func TestRejectKeepsThePolicyThatTheSessionHas(t *testing.T) {
	w := settled()
	w.session.Status = statusOf(w)
	w.session.Spec.Sandbox.Mode, w.session.Generation = v1alpha1.ModeDangerFullAccess, 3
	w.class.Spec.Ceiling = v1alpha1.Ceiling{MaxMode: v1alpha1.ModeWorkspaceWrite, OnExceed: v1alpha1.OnExceedReject}
	w.resolve()
	if w.refused == nil || w.refused.reason != v1alpha1.ReasonModeNotPermitted || w.policy.document.Policy.Mode != policy.WorkspaceWrite {
		t.Fatalf("refused %+v, policy %+v; want workspace-write kept", w.refused, w.policy)
	}
	w.class.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	w.resolve()
	if w.policy.document.Policy.Mode != policy.ReadOnly {
		t.Errorf("the kept policy is %s although the ceiling is read-only", w.policy.document.Policy.Mode)
	}
	w.session.Status.Policy, w.session.Status.StartTime, w.pod = nil, nil, nil
	w.resolve()
	if plan, _ := planPod(w); w.policy != nil || plan != leavePod {
		t.Errorf("a session that was never accepted has policy %+v and plan %d", w.policy, plan)
	}
}

func TestARaisedClassDoesNotWidenAPodThatCannotWrite(t *testing.T) {
	w := settled()
	low := w.class.DeepCopy()
	low.Spec.Ceiling.MaxMode = v1alpha1.ModeReadOnly
	w.pod = builtPod(w.session, low)
	w.resolve()
	if w.policy.document.Policy.Mode != policy.ReadOnly || len(w.policy.clamps) != 1 {
		t.Errorf("policy %+v, clamps %+v; want read-only and a clamp", w.policy.document.Policy, w.policy.clamps)
	}
}

func TestModelChoice(t *testing.T) {
	w := settled()
	w.session.Spec.Model = &v1alpha1.ModelChoice{Name: "gpt-x"}
	w.session.Status.StartTime = nil
	w.resolve()
	if w.refused == nil || w.refused.reason != v1alpha1.ReasonModelNotAllowed || !strings.Contains(w.refused.message, "deepseek-chat") {
		t.Fatalf("refused %+v, want ModelNotAllowed naming what is allowed", w.refused)
	}
	w.class.Spec.Model.AllowedNames = []string{"gpt-x"}
	w.resolve()
	if w.refused != nil || w.policy.model != "gpt-x" {
		t.Errorf("refused %+v although the class allows it", w.refused)
	}
}

// Of a session's limits and its class's the lower one holds, part by part.
func TestLimitsOf(t *testing.T) {
	session := &v1alpha1.Limits{MaxTurns: 5, MaxTotalTokens: 100}
	class := &v1alpha1.Limits{MaxTurns: 3, MaxStepsPerTurn: 7, MaxTotalTokens: 200}
	want := wire.SessionLimits{MaxTurns: 3, MaxStepsPerTurn: 7, MaxTotalTokens: 100}
	if got := limitsOf(session, class); got != want {
		t.Errorf("limitsOf() = %+v, want %+v", got, want)
	}
	if got := limitsOf(nil, nil); got != (wire.SessionLimits{}) {
		t.Errorf("limitsOf() = %+v without any", got)
	}
}

// A default holds, limit by limit, where the session is silent; the class's limits stand beside it.
func TestDefaultLimits(t *testing.T) {
	defaults := &v1alpha1.Limits{MaxTurns: 10, MaxStepsPerTurn: 20, MaxTotalTokens: 30}
	for name, tc := range map[string]struct {
		own, defaults, class *v1alpha1.Limits
		want                 wire.SessionLimits
	}{
		"nobody says anything":               {nil, nil, nil, wire.SessionLimits{}},
		"the session is silent":              {nil, defaults, nil, wire.SessionLimits{MaxTurns: 10, MaxStepsPerTurn: 20, MaxTotalTokens: 30}},
		"the session asks for more":          {&v1alpha1.Limits{MaxTurns: 100}, defaults, nil, wire.SessionLimits{MaxTurns: 100, MaxStepsPerTurn: 20, MaxTotalTokens: 30}},
		"more than the class allows":         {&v1alpha1.Limits{MaxTurns: 100}, defaults, &v1alpha1.Limits{MaxTurns: 50}, wire.SessionLimits{MaxTurns: 50, MaxStepsPerTurn: 20, MaxTotalTokens: 30}},
		"a default beyond the class's limit": {nil, defaults, &v1alpha1.Limits{MaxTurns: 5}, wire.SessionLimits{MaxTurns: 5, MaxStepsPerTurn: 20, MaxTotalTokens: 30}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := limitsOf(withDefaults(tc.own, tc.defaults), tc.class); got != tc.want {
				t.Errorf("the limits are %+v, want %+v", got, tc.want)
			}
		})
	}
}
