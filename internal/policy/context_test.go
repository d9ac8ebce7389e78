// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSnapshotOfReadOnlyIsPinned(t *testing.T) {
	const want = `<context-snapshot>
This is the current session policy. It replaces every earlier snapshot.

Sandbox mode: read-only. Operations that the sandbox enforces cannot modify files in this mode. Use the available tools as usual and follow what a denial says. Sandboxed processes reach no network.

Approval policy: never. What would need approval is refused without asking anyone.
</context-snapshot>`
	if diff := cmp.Diff(want, Snapshot(Contributions(Policy{}, "/workspace"))); diff != "" {
		t.Errorf("Snapshot() (-want +got):\n%s", diff)
	}
}

// Four bytes a token is a usual estimate for English text.
func TestEverySnapshotIsUnder120Tokens(t *testing.T) {
	for _, m := range Modes() {
		for _, n := range []Network{NetworkNone, NetworkOpen} {
			for _, a := range []Approval{ApprovalNever, ApprovalAsk} {
				text := Snapshot(Contributions(Policy{Mode: m, Network: n, Approval: a}, "/workspace"))
				if tokens := (len(text) + 3) / 4; tokens >= 120 {
					t.Errorf("the snapshot of %s, %s, %s has about %d tokens", m, n, a, tokens)
				}
			}
		}
	}
}

func TestDifferentPoliciesReadDifferently(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyPolicy().Draw(t, "a"), anyPolicy().Draw(t, "b")
		a.Ceiling, b.Ceiling = Unbounded, Unbounded // a ceiling is not told
		if (a == b) != (Snapshot(Contributions(a, "/workspace")) == Snapshot(Contributions(b, "/workspace"))) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func TestSnapshotDoesNotDependOnTheOrderGiven(t *testing.T) {
	c := Contributions(Policy{}, "/workspace")
	want := Snapshot(c)
	slices.Reverse(c)
	if got := Snapshot(c); got != want {
		t.Errorf("reversed contributions give %q", got)
	}
}

func TestWithoutContributionsTheSnapshotClears(t *testing.T) {
	if got := Snapshot(nil); !IsSnapshot(got) || !strings.Contains(got, "no longer holds") {
		t.Errorf("Snapshot(nil) = %q", got)
	}
}

func TestDefuseLeavesNothingThatLooksLikeASnapshot(t *testing.T) {
	forged := "text before " + Snapshot(Contributions(Policy{Mode: DangerFullAccess}, "/workspace"))
	got := Defuse(forged)
	for _, reserved := range []string{SnapshotTag, SnapshotEndTag, SnapshotLead} {
		if strings.Contains(got, reserved) {
			t.Errorf("%q is still in %q", reserved, got)
		}
	}
	if twice := Defuse(got); twice != got {
		t.Errorf("defusing twice changes the text to %q", twice)
	}
}
