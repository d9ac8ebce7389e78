// SPDX-License-Identifier: Apache-2.0

package call

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
)

func TestAnOrderComesAsItWent(t *testing.T) {
	profile := policy.Profile{Mode: policy.DangerFullAccess, Network: policy.NetworkOpen}
	for name, tc := range map[string]struct {
		order Order
		want  program
	}{
		"a command": {
			Order{profile, "bash", `{"command":"a<b","cwd":"sub"}`, "/workspace", "any", nil, nil},
			program{argv: []string{"bash", "-c", "a<b"}, env: Environment("/workspace"), dir: "/workspace/sub"},
		},
		"a file tool": {
			Order{profile, "read", `{"path":"a"}`, "/workspace", "any", nil, nil},
			program{path: self, argv: []string{"toolbox", "tool", "read", "/workspace", "any"}, env: Environment("/workspace"), dir: "/workspace", stdin: []byte(`{"path":"a"}`)},
		},
		"a terminal": {
			Order{profile, "terminal", `{"action":"open","command":"top"}`, "/workspace", "", []string{"A=b", "LANG=de_DE.UTF-8"}, nil},
			program{argv: []string{"bash", "-c", "top"}, env: Environment("/workspace", "A=b", "LANG=de_DE.UTF-8"), dir: "/workspace", terminal: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := encodeOrder(tc.order)
			if err != nil {
				t.Fatal(err)
			}
			c, err := tool.Canonical(tc.order.Tool, []byte(tc.order.Arguments))
			if err != nil {
				t.Fatal(err)
			}
			tc.order.Decoded = c.Arguments
			if same, err := encodeOrder(tc.order); err != nil || !bytes.Equal(b, same) {
				t.Errorf("decoded before, it is another order: %q, want %q (%v)", same, b, err)
			}
			got, err := decodeOrder(b[4:])
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.path == "" {
				tc.want.path, _ = bash()
			}
			want := assignment{rules{profile, "/workspace"}, tc.want}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(assignment{}, rules{}, program{})); diff != "" {
				t.Errorf("decodeOrder() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	whole, err := assignment{rules{policy.Profile{}, "/w"}, program{path: "/p", argv: []string{"p"}, dir: "/w"}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[4:]
	for i := range whole {
		if a, err := decodeOrder(whole[:i]); err == nil {
			t.Errorf("%d of %d bytes are taken as %+v", i, len(whole), a)
		}
	}
	for name, change := range map[string]func([]byte) []byte{
		"an unknown mode":    func(b []byte) []byte { b[3] = 3; return b },
		"an unknown network": func(b []byte) []byte { b[7] = 2; return b },
		"an unknown mark":    func(b []byte) []byte { b[11] = 4; return b },
		"a byte behind it":   func(b []byte) []byte { return append(b, 0) },
		"a text of 4 GiB":    func(b []byte) []byte { copy(b[12:], "\xff\xff\xff\xff"); return b },
	} {
		if a, err := decodeOrder(change(slices.Clone(whole))); err == nil {
			t.Errorf("%s is taken as %+v", name, a)
		}
	}
	if a, err := decodeOrder(whole); err != nil {
		t.Errorf("what was changed was no order by itself: %+v, %v", a, err)
	}
}

// Whatever init reads, it takes it as something that can be written, or not at all.
func FuzzDecodeOrder(f *testing.F) {
	for _, a := range []assignment{
		{rules{policy.Profile{Mode: policy.WorkspaceWrite}, "/w"}, program{path: "/p", argv: []string{"p", "q"}, env: []string{"A=b"}, dir: "/w", stdin: []byte("{}")}},
		{program: program{terminal: true}},
	} {
		b, err := a.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[4:])
	}
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := decodeOrder(in)
		if err != nil {
			return
		}
		b, err := a.encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if !bytes.Equal(b[4:], in) {
			t.Fatalf("%x comes back as %x", in, b[4:])
		}
	})
}

func TestAnEndComesAsItWent(t *testing.T) {
	for _, want := range []End{{Status: 3, Processes: 70000}, {Signal: "SIGKILL", Left: true}, {Signal: "signal 40"}} {
		status := unix.WaitStatus(want.Status << 8)
		switch want.Signal {
		case "SIGKILL":
			status = 9
		case "signal 40":
			status = 40
		}
		got, err := decodeEnd(encodeEnd(status, want.Processes, want.Left))
		if err != nil || got != want {
			t.Errorf("%+v comes back as %+v, %v", want, got, err)
		}
	}
	if _, err := decodeEnd(nil); err == nil {
		t.Error("nothing is taken as an end")
	}
}

// The environment of a call is made of a list: what the supervisor has does not matter.
func TestTheEnvironmentIsTheAllowList(t *testing.T) {
	t.Setenv("API_KEY", "secret")
	want := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp/home", "LANG=C.UTF-8", "TERM=dumb", "TMPDIR=/tmp",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=/w",
	}
	if diff := cmp.Diff(want, Environment("/w")); diff != "" {
		t.Errorf("Environment() (-want +got):\n%s", diff)
	}
	own := slices.Clone(want)
	own[0], own[2] = "PATH=/opt/go/bin:/usr/bin:/bin", "LANG=de_DE.UTF-8"
	if diff := cmp.Diff(append(own, "CI=", "X=a=b c"), Environment("/w", "LANG=de_DE.UTF-8", "CI=", "PATH=/opt/go/bin:/usr/bin:/bin", "X=a=b c")); diff != "" {
		t.Errorf("Environment() with variables of a class (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(Environment("/w"), func(v string) bool { return strings.Contains(v, os.Getenv("API_KEY")) }) {
		t.Error("a variable of the supervisor is in it")
	}
}

func TestVariablesThatAreNotTheClasssToSet(t *testing.T) {
	for _, v := range []string{"PATH=/opt/bin", "LANG=", "TERM=xterm", "HTTPS_PROXY=http://proxy:3128", "_x1=\n$(y)", "HOMEBREW=a=b", "GIT_SSL_CAINFO=/etc/ca"} {
		if err := CheckVariable(v); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, v := range []string{
		"", "=", "=x", "CI", "1=x", "A B=x", "A-B=x", "ä=x", "A=\x00", "HOME=/workspace", "TMPDIR=/workspace", "_=x", "PWD=/", "UID=0",
		"BASH_ENV=/workspace/x", "BASH_FUNC_ls%%=() { :; }", "ENV=/workspace/x", "SHELLOPTS=xtrace", "IFS=x",
		"LD_PRELOAD=/workspace/x.so", "LD_LIBRARY_PATH=/workspace", "GIT_CONFIG_COUNT=0", "GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_GLOBAL=/workspace/x",
	} {
		if CheckVariable(v) == nil {
			t.Errorf("%q may be set", v)
		}
	}
}

func TestACommandThatTheKernelWouldNotTake(t *testing.T) {
	if err := CheckCommand(&tool.Bash{Command: strings.Repeat("a", MaxCommand)}); err != nil {
		t.Errorf("%d bytes: %v", MaxCommand, err)
	}
	if err := CheckCommand(&tool.Bash{Command: strings.Repeat("a", MaxCommand+1)}); !errors.Is(err, ErrCommandTooLong) {
		t.Errorf("%d bytes: %v", MaxCommand+1, err)
	}
}
