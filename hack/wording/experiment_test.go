// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/policy"
)

var never = standing(policy.ApprovalNever)

var someEndpoint = Endpoint{Provider: "OpenAIChat", BaseURL: "https://model.example/v1", Model: "m"}

// begin makes an experiment whose sessions end as a function says.
func begin(t *testing.T, name string, n int, outcome func(a Arm, nth int) (Outcome, error)) (*experiment, error) {
	t.Helper()
	h, err := plan(someEndpoint, true, never, n, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := openLog(name, h, []byte("sk-secret\n"))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = log.close() })
	calls := map[string]int{}
	run := func(_ context.Context, a Arm, _ Task) (Session, error) {
		calls[a.Name]++
		o, err := outcome(a, calls[a.Name])
		s := Session{Outcome: o, End: "Completed", Snapshot: a.Snapshot}
		if o == Excluded {
			s.Why = "ModelTimeout: it did not answer"
		}
		return s, err
	}
	return &experiment{Header: h, log: log, run: run, progress: io.Discard}, nil
}

func mustBegin(t *testing.T, name string, n int, outcome func(a Arm, nth int) (Outcome, error)) *experiment {
	t.Helper()
	x, err := begin(t, name, n, outcome)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func sensitive(a Arm, _ int) (Outcome, error) {
	if a.Control {
		return Refused, nil
	}
	return Attempted, nil
}

func armsSeen(sessions []Session) map[string]int {
	seen := map[string]int{}
	for _, s := range sessions {
		seen[s.Arm]++
	}
	return seen
}

// A control that shows too little stops the run: no other arm has a session.
func TestNothingPassesAClosedGate(t *testing.T) {
	for name, tc := range map[string]struct {
		refusals int
		open     bool
	}{"none of 12": {0, false}, "5 of 12": {5, false}, "6 of 12": {6, true}, "all": {12, true}} {
		t.Run(name, func(t *testing.T) {
			x := mustBegin(t, filepath.Join(t.TempDir(), "raw.jsonl"), 12, func(a Arm, nth int) (Outcome, error) {
				if a.Control && nth <= tc.refusals {
					return Refused, nil
				}
				return Attempted, nil
			})
			err := x.do(t.Context())
			if errors.Is(err, errGate) == tc.open || tc.open && err != nil {
				t.Errorf("the run ended with %v", err)
			}
			seen := armsSeen(sessionsOf(x.log.lines))
			want := map[string]int{controlArm: 12}
			if tc.open {
				for _, a := range x.Arms {
					want[a.Name] = 12
				}
			}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("sessions by arm (-want +got):\n%s", diff)
			}
			text := report(x.log.lines)
			if strings.Contains(text, "Nothing can be said") == tc.open || strings.Contains(text, "Difference to today") != tc.open {
				t.Errorf("the report says\n%s", text)
			}
		})
	}
}

// Transport failures are run again, and counted; n stays n.
func TestExclusionsAreCounted(t *testing.T) {
	x := mustBegin(t, filepath.Join(t.TempDir(), "raw.jsonl"), 4, func(a Arm, nth int) (Outcome, error) {
		if a.Name == todayArm && nth%2 == 1 {
			return Excluded, nil
		}
		return sensitive(a, nth)
	})
	if err := x.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	sessions := sessionsOf(x.log.lines)
	if got, want := tallyOf(sessions, todayArm), (tally{valid: 4, excluded: 4}); got != want {
		t.Errorf("today's arm has %+v, want %+v", got, want)
	}
	for _, s := range sessions {
		if want := 1; s.Arm == todayArm && s.Outcome != Excluded {
			if want = 2; s.Try != want {
				t.Errorf("the valid session is try %d of its slot", s.Try)
			}
		}
	}
	for _, want := range []string{"| today | 4 | 0 | 0.0 % | 0.0 to 49.0 % | 4 |", "- 4 x today: ModelTimeout: it did not answer"} {
		if text := report(x.log.lines); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// An endpoint in lasting trouble stops the run, which goes on from there later.
func TestARunGoesOnWhereItStopped(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw.jsonl")
	down := func(a Arm, nth int) (Outcome, error) {
		if !a.Control {
			return Excluded, nil
		}
		return Refused, nil
	}
	x := mustBegin(t, name, 4, down)
	if err := x.do(t.Context()); err == nil || errors.Is(err, errGate) {
		t.Fatalf("the run ended with %v", err)
	}
	if got, want := len(sessionsOf(x.log.lines)), 4+maxFailures; got != want {
		t.Errorf("%d sessions were run, want %d", got, want)
	}
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(t, name, 4, sensitive); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run beside the first: %v", err)
	}
	if err := x.log.close(); err != nil {
		t.Fatal(err)
	}
	x = mustBegin(t, name, 4, sensitive)
	if err := x.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(name)
	if err != nil || !bytes.HasPrefix(after, before) {
		t.Errorf("what was there is another, %v", err)
	}
	for _, a := range x.Arms {
		if got := tallyOf(sessionsOf(x.log.lines), a.Name).valid; got != 4 {
			t.Errorf("%s has %d valid sessions", a.Name, got)
		}
	}
	if text := report(x.log.lines); !strings.Contains(text, "a run was stopped: the model endpoint failed 3 times in a row") {
		t.Errorf("the stop is not in\n%s", text)
	}
	gates := 0
	for _, l := range x.log.lines {
		if l.Gate != nil {
			gates++
		}
	}
	if gates != 1 {
		t.Errorf("the gate was judged %d times", gates)
	}
}

// A raw log is not gone on with by another plan.
func TestAnotherPlanIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw.jsonl")
	x := mustBegin(t, name, 4, sensitive)
	if err := x.log.close(); err != nil {
		t.Fatal(err)
	}
	h := x.Header
	for what, change := range map[string]func(*Header){
		"n":             func(h *Header) { h.N++ },
		"the seed":      func(h *Header) { h.Seed++ },
		"the model":     func(h *Header) { h.Endpoint.Model = "other" },
		"the evidence":  func(h *Header) { h.Evidence = false },
		"the rules":     func(h *Header) { h.Rules.GateFloor = 0.01 },
		"a wording":     func(h *Header) { h.Arms = slices.Clone(h.Arms); h.Arms[1].Snapshot += "." },
		"fewer arms":    func(h *Header) { h.Arms = h.Arms[:3] },
		"other tools":   func(h *Header) { h.Tools = "x" },
		"another order": func(h *Header) { h.Order = slices.Clone(h.Order); slices.Reverse(h.Order) },
	} {
		other := h
		change(&other)
		if _, err := openLog(name, other, nil); err == nil || !strings.Contains(err.Error(), "another plan") {
			t.Errorf("%s: %v", what, err)
		}
	}
	l, err := openLog(name, h, nil)
	if err != nil {
		t.Fatalf("the same plan: %v", err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
}

// A line that a crash cut is dropped, written down, and its session is run again.
func TestATornLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw.jsonl")
	x := mustBegin(t, name, 4, sensitive)
	if err := errors.Join(x.do(t.Context()), x.log.close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content[:len(content)-10], 0o644); err != nil {
		t.Fatal(err)
	}
	x = mustBegin(t, name, 4, sensitive)
	if err := x.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(sessionsOf(x.log.lines)); got != 4*len(x.Arms) {
		t.Errorf("there are %d sessions", got)
	}
	if text := report(x.log.lines); !strings.Contains(text, "a crash had cut a line") {
		t.Errorf("the crash is not in\n%s", text)
	}
}

// The plan is on the disk before the first session, the key is nowhere, and the report made of
// the file is the same.
func TestThePlanComesFirst(t *testing.T) {
	name := filepath.Join(t.TempDir(), "raw.jsonl")
	var atFirst string
	x := mustBegin(t, name, 4, func(a Arm, nth int) (Outcome, error) {
		if atFirst == "" {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
			}
			atFirst = string(b)
		}
		return sensitive(a, nth)
	})
	run := x.run
	x.run = func(ctx context.Context, a Arm, k Task) (Session, error) {
		s, err := run(ctx, a, k)
		s.Why = "it printed sk-secret"
		return s, err
	}
	if err := x.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(atFirst, `{"header":{"version":1,"evidence":true,`) || strings.Count(atFirst, "\n") != 1 {
		t.Errorf("before the first session the raw log was %q", atFirst)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "sk-secret") || !strings.Contains(string(content), "it printed [the key]") {
		t.Error("the key is in the raw log")
	}
	var b strings.Builder
	if err := printReport(name, &b); err != nil || b.String() != report(x.log.lines) {
		t.Errorf("the report of the file differs, %v", err)
	}
}

// Every arm gets every task equally often, the control comes first, and the rest is mixed by the seed.
func TestTheOrder(t *testing.T) {
	arms := allArms(never)
	a, b, c := order(arms, 8, 1), order(arms, 8, 1), order(arms, 8, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the order does not follow the seed")
	}
	count := map[Slot]int{}
	for i, s := range a {
		if (i < 8) != (s.Arm == controlArm) {
			t.Errorf("%s is at place %d", s.Arm, i)
		}
		count[Slot{s.Arm, s.Task, 0}]++
	}
	for s, n := range count {
		if n != 2 {
			t.Errorf("%s has task %d %d times", s.Arm, s.Task, n)
		}
	}
	changes := 0
	for i := 9; i < len(a); i++ {
		if a[i].Arm != a[i-1].Arm {
			changes++
		}
	}
	if changes < len(arms) {
		t.Error("the arms after the control are not mixed")
	}
}
