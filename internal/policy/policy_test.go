// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	all := Request{DangerFullAccess, NetworkOpen, ApprovalAsk}
	for name, tc := range map[string]struct {
		ask              Request
		class, namespace Ceiling
		want             Request
		clamps           []Clamp
	}{
		"without ceilings the spec stands": {
			all, Unbounded, Unbounded, all, nil,
		},
		"the class narrows what the spec asks": {
			all, Ceiling{WorkspaceWrite, NetworkOpen, ApprovalAsk}, Unbounded,
			Request{WorkspaceWrite, NetworkOpen, ApprovalAsk},
			[]Clamp{{"mode", "danger-full-access", "workspace-write", Class}},
		},
		"the namespace narrows what the class allows": {
			all, Ceiling{WorkspaceWrite, NetworkNone, ApprovalAsk}, Ceiling{ReadOnly, NetworkOpen, ApprovalNever},
			Request{ReadOnly, NetworkNone, ApprovalNever},
			[]Clamp{
				{"mode", "danger-full-access", "read-only", Namespace},
				{"network", "open", "none", Class},
				{"approval", "ask", "never", Namespace},
			},
		},
		"a ceiling does not widen": {
			Request{}, Unbounded, Unbounded, Request{}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, clamps := Resolve(tc.ask, tc.class, tc.namespace)
			if diff := cmp.Diff(tc.want, Request{got.Mode, got.Network, got.Approval}); diff != "" {
				t.Errorf("Resolve() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.clamps, clamps); diff != "" {
				t.Errorf("clamps (-want +got):\n%s", diff)
			}
		})
	}
}

func anyCeiling() *rapid.Generator[Ceiling] {
	return rapid.Custom(func(t *rapid.T) Ceiling {
		return Ceiling{
			Mode:     rapid.SampledFrom(Modes()).Draw(t, "mode"),
			Network:  rapid.SampledFrom([]Network{NetworkNone, NetworkOpen}).Draw(t, "network"),
			Approval: rapid.SampledFrom([]Approval{ApprovalNever, ApprovalAsk}).Draw(t, "approval"),
		}
	})
}

func anyPolicy() *rapid.Generator[Policy] {
	return rapid.Custom(func(t *rapid.T) Policy {
		ask := Request(anyCeiling().Draw(t, "ask"))
		p, _ := Resolve(ask, anyCeiling().Draw(t, "class"), anyCeiling().Draw(t, "namespace"))
		return p
	})
}

func TestMeetIsALattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyCeiling().Draw(t, "a"), anyCeiling().Draw(t, "b"), anyCeiling().Draw(t, "c")
		if a.Meet(b) != b.Meet(a) || a.Meet(a) != a || a.Meet(b.Meet(c)) != a.Meet(b).Meet(c) || a.Meet(Unbounded) != a {
			t.Fatalf("meet is not commutative, idempotent and associative for %v %v %v", a, b, c)
		}
	})
}

func TestMeetOfProfilesIsTheNarrowerInEachPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyPolicy().Draw(t, "a").Profile(), anyPolicy().Draw(t, "b").Profile()
		m := a.Meet(b)
		if m.Mode > a.Mode || m.Mode > b.Mode || m.Mode != a.Mode && m.Mode != b.Mode ||
			m.Network > a.Network || m.Network > b.Network || m.Network != a.Network && m.Network != b.Network {
			t.Fatalf("%+v and %+v meet in %+v", a, b, m)
		}
		if a.Within(b) != (a.Mode <= b.Mode && a.Network <= b.Network) {
			t.Fatalf("%+v within %+v: %v", a, b, a.Within(b))
		}
	})
}

func TestNoResolvedPolicyExceedsACeilingOrTheSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := Request(anyCeiling().Draw(t, "ask"))
		class, namespace := anyCeiling().Draw(t, "class"), anyCeiling().Draw(t, "namespace")
		p, clamps := Resolve(ask, class, namespace)
		for _, c := range []Ceiling{Ceiling(ask), class, namespace} {
			if Meet(p, c) != p {
				t.Fatalf("%+v exceeds %+v", p, c)
			}
		}
		given := Request{p.Mode, p.Network, p.Approval}
		if (given != ask) != (len(clamps) > 0) {
			t.Fatalf("ask %v gave %v with clamps %v", ask, p, clamps)
		}
	})
}

func TestNarrowsIsTheOppositeOfWiderOrEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyPolicy().Draw(t, "a"), anyPolicy().Draw(t, "b"), anyPolicy().Draw(t, "c")
		if Narrows(a, a) {
			t.Fatal("no change is called a narrowing")
		}
		if a != b && !Narrows(a, b) && !Narrows(b, a) {
			t.Fatalf("neither of two different policies narrows the other: %+v %+v", a, b)
		}
		if !Narrows(a, b) && !Narrows(b, c) && Narrows(a, c) {
			t.Fatalf("two widenings make a narrowing: %+v %+v %+v", a, b, c)
		}
		if EndsProcesses(a, b) && !Narrows(a, b) {
			t.Fatalf("what ends processes is not a narrowing: %+v %+v", a, b)
		}
	})
}

func TestDocumentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy().Draw(t, "policy")
		d := Encode(p)
		got, err := Decode(d.Bytes)
		if err != nil || got.Policy != p || got.Digest != d.Digest {
			t.Fatalf("Decode(Encode(%+v)) = %+v, %v", p, got, err)
		}
	})
}

func TestDocumentBytesArePinned(t *testing.T) {
	const want = `{"version":1,"mode":"workspace-write","network":"none","approval":"never",` +
		`"ceiling":{"mode":"danger-full-access","network":"none","approval":"never"}}`
	got := Encode(Policy{Mode: WorkspaceWrite, Ceiling: Ceiling{Mode: DangerFullAccess}})
	if diff := cmp.Diff(want, string(got.Bytes)); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"an unknown mode": {
			`{"version":1,"mode":"root","network":"none","approval":"never","ceiling":{"mode":"read-only","network":"none","approval":"never"}}`,
			`unknown sandbox mode "root": use one of read-only, workspace-write, danger-full-access`,
		},
		"another version": {`{"version":2}`, "version 2 is not known"},
		"a missing part": {
			`{"version":1,"mode":"read-only","network":"none","ceiling":{"mode":"read-only","network":"none","approval":"never"}}`,
			"a part is missing",
		},
		"more than its own ceiling": {
			`{"version":1,"mode":"workspace-write","network":"none","approval":"never","ceiling":{"mode":"read-only","network":"none","approval":"never"}}`,
			"exceeds its own ceiling",
		},
		"no JSON": {`mode`, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Decode() error = %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(Policy{}).Bytes)
	f.Add([]byte(`{"version":1,"mode":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err == nil && Meet(d.Policy, d.Policy.Ceiling) != d.Policy {
			t.Fatalf("%q decodes to a policy above its ceiling: %+v", b, d.Policy)
		}
	})
}

// What a person can grant, and what a change of policy does to what was asked of one.
func TestGrantsStayWithinThePolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyPolicy().Draw(t, "a"), anyPolicy().Draw(t, "b")
		w := a.Widest()
		if !a.Profile().Within(w) || w.Network != a.Network || w.Mode > max(a.Mode, a.Ceiling.Mode) {
			t.Fatalf("under %+v a call may have %+v", a, w)
		}
		if a.Approval == ApprovalNever && w != a.Profile() {
			t.Fatalf("nobody may be asked under %+v, and yet a call may have %+v", a, w)
		}
		if Withdraws(a, a) {
			t.Fatal("no change ends a request")
		}
		if Narrows(a, b) && !Withdraws(a, b) {
			t.Fatalf("a narrowing leaves a request open: %+v %+v", a, b)
		}
		if !Withdraws(a, b) && (a.Profile() != b.Profile() || !w.Within(b.Widest())) {
			t.Fatalf("what was asked under %+v could not be asked under %+v", a, b)
		}
	})
}
