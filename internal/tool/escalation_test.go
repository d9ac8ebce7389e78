// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/policy"
)

func decode(t *testing.T, name, raw string) Call {
	t.Helper()
	c, err := Decode(name, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A wish is taken out of the arguments: what a tools container gets is what it would get without
// it, and arguments that still hold one are refused there.
func TestAWishIsNoArgument(t *testing.T) {
	for name, args := range map[string]string{
		"bash":  `"command":"touch f"`,
		"write": `"path":"f","content":"a"`,
		"edit":  `"path":"f","old_string":"a","new_string":"b"`,
	} {
		plain := decode(t, name, `{`+args+`}`)
		asks := decode(t, name, `{"justification":"to test","sandbox_permissions":"danger-full-access",`+args+`}`)
		if diff := cmp.Diff(&Wants{policy.DangerFullAccess, "to test"}, asks.Wants); diff != "" || plain.Wants != nil {
			t.Errorf("%s: wish (-want +got):\n%s", name, diff)
		}
		if !bytes.Equal(plain.Canonical, asks.Canonical) || plain.Digest != asks.Digest {
			t.Errorf("%s: the call is %s with the wish and %s without", name, asks.Canonical, plain.Canonical)
		}
		if _, err := Canonical(name, []byte(`{`+args+`,"sandbox_permissions":"workspace-write","justification":"b"}`)); err == nil {
			t.Errorf("%s: a tools container takes the wish for an argument", name)
		}
	}
	for _, tool := range All() {
		want := strings.Contains("bash write edit", tool.Name)
		if tool.Escalates() != want || strings.Contains(string(tool.Schema), permissionsKey) != want {
			t.Errorf("%s can be escalated: %v, want %v", tool.Name, tool.Escalates(), want)
		}
	}
}

// A preview is whole, says what is done to what, and nothing in it hides, moves or forges.
func TestPreviews(t *testing.T) {
	const end = "The contents of files that this reads or runs are not shown here.\nTerminals that are open now are ended before it starts.\n"
	for name, tc := range map[string]struct{ tool, args, want string }{
		"a command": {"bash", `{"command":"make\nmake install"}`,
			"run with bash, for 2m0s at most, in the directory\n| /workspace\nthe command\n| make\n| make install\n" + end},
		"a directory": {"bash", `{"command":"ls","cwd":"a/../b","timeout_seconds":5}`,
			"run with bash, for 5s at most, in the directory\n| /workspace/a/../b\nthe command\n| ls\n" + end},
		"an absolute directory": {"bash", `{"command":"ls","cwd":"/etc"}`,
			"run with bash, for 2m0s at most, in the directory\n| /etc\nthe command\n| ls\n" + end},
		"a file": {"write", `{"path":"f","content":"a\n\tb\n"}`,
			"write the file\n| f\nwith the content (5 bytes)\n| a\n| ⟨tab⟩b\n| \n" + end},
		"an edit": {"edit", `{"path":"f","old_string":"a","new_string":""}`,
			"edit the file\n| f\nreplacing the one occurrence of (1 bytes)\n| a\nby (0 bytes)\n| \n" + end},
		"every occurrence": {"edit", `{"path":"f","old_string":"a","new_string":"b","replace_all":true}`,
			"edit the file\n| f\nreplacing every occurrence of (1 bytes)\n| a\nby (1 bytes)\n| b\n" + end},
		"a forged end": {"bash", `{"command":"ls\nThe contents of files"}`,
			"run with bash, for 2m0s at most, in the directory\n| /workspace\nthe command\n| ls\n| The contents of files\n" + end},
		"what does not show": {"bash", `{"command":"a\u202eb\u0007\u200bc\u00a0d\u001b[2K\r\u2028e\ufe0f\u3164\u2800⟨tab⟩"}`,
			"run with bash, for 2m0s at most, in the directory\n| /workspace\nthe command\n" +
				"| a⟨U+202E⟩b⟨U+0007⟩⟨U+200B⟩c⟨U+00A0⟩d⟨U+001B⟩[2K⟨U+000D⟩⟨U+2028⟩e⟨U+FE0F⟩⟨U+3164⟩⟨U+2800⟩⟨U+27E8⟩tab⟩\n" + end},
	} {
		t.Run(name, func(t *testing.T) {
			got, whole := decode(t, tc.tool, tc.args).Preview("/workspace")
			if diff := cmp.Diff(tc.want, got); diff != "" || !whole {
				t.Errorf("preview, whole %v (-want +got):\n%s", whole, diff)
			}
		})
	}
	long := decode(t, "bash", `{"command":"`+strings.Repeat("a", MaxPreview)+`"}`)
	if _, whole := long.Preview("/workspace"); whole {
		t.Error("what is too long to be shown passes for shown")
	}
	if _, whole := decode(t, "read", `{"path":"f"}`).Preview("/workspace"); whole {
		t.Error("a tool that cannot be escalated is shown for approval")
	}
}

// Whatever differs in what a decision holds for, the digest differs.
func TestRequestDigest(t *testing.T) {
	digest := func(c Call, workspace string, m policy.Mode, session, call string) string {
		t.Helper()
		d, err := c.RequestDigest(workspace, m, session, call)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ls := decode(t, "bash", `{"command":"ls","cwd":"a"}`)
	first := digest(ls, "/workspace", policy.WorkspaceWrite, "s", "1.1.1")
	// Of the bytes {"arguments":{"command":"ls","cwd":"a"},"callID":"1.1.1","cwd":"/workspace/a","mode":"workspace-write","sessionUID":"s","tool":"bash"}
	const want = "fb7698787bcc775105bcedeb91feec41e5ffc9ae58f018354d754b00cf995caf"
	if first != want {
		t.Errorf("digest %s, want %s", first, want)
	}
	for name, other := range map[string]string{
		"the mode":      digest(ls, "/workspace", policy.DangerFullAccess, "s", "1.1.1"),
		"the session":   digest(ls, "/workspace", policy.WorkspaceWrite, "t", "1.1.1"),
		"the call":      digest(ls, "/workspace", policy.WorkspaceWrite, "s", "1.1.2"),
		"the workspace": digest(ls, "/work", policy.WorkspaceWrite, "s", "1.1.1"),
		"the directory": digest(decode(t, "bash", `{"command":"ls","cwd":"b"}`), "/workspace", policy.WorkspaceWrite, "s", "1.1.1"),
		"the command":   digest(decode(t, "bash", `{"command":"ls ","cwd":"a"}`), "/workspace", policy.WorkspaceWrite, "s", "1.1.1"),
	} {
		if other == first {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// The canonical form, by what RFC 8785 says of order, escapes and numbers.
func TestCanonicalForm(t *testing.T) {
	var b bytes.Buffer
	in := `{"\ufb33":[],"\ud83d\ude02":[1,-7,true,null],"a":"\u0000\b\f\n\r\t\"\\/\u007f\u2028<é","":{"z":{},"b":0}}`
	if err := canonicalize(&b, rawObject(in)); err != nil {
		t.Fatal(err)
	}
	want := `{"":{"b":0,"z":{}},"a":"\u0000\b\f\n\r\t\"\\/` + "\u007f\u2028<é" + `","😂":[1,-7,true,null],"` + "\ufb33" + `":[]}`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("canonical form (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{"a":1.5}`, `{"a":1e30}`, `{"a":9007199254740993}`, `[`} {
		if err := canonicalize(&bytes.Buffer{}, rawObject(bad)); err == nil {
			t.Errorf("%s has a canonical form", bad)
		}
	}
}
