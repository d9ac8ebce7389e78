// SPDX-License-Identifier: Apache-2.0

package call

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
)

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestAnOrderComesAsItWent(t *testing.T) {
	want := Order{policy.Profile{Mode: policy.DangerFullAccess}, "bash", `{"command":"a<b"}`, "/workspace", "any"}
	b, err := encodeOrder(want)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(append(b, 'G'))
	got, err := readOrder(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("readOrder() (-want +got):\n%s", diff)
	}
	if r.Len() != 1 {
		t.Errorf("%d bytes are left, want the one behind it alone", r.Len())
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":         ``,
		"no profile":      `{"tool":"bash","arguments":"{}","workspace":"/w"}`,
		"no mode":         `{"profile":{"network":"none"},"tool":"bash","arguments":"{}","workspace":"/w"}`,
		"no network":      `{"profile":{"mode":"read-only"},"tool":"bash","arguments":"{}","workspace":"/w"}`,
		"no workspace":    `{"profile":{"mode":"read-only","network":"none"},"tool":"bash","arguments":"{}"}`,
		"an unknown mode": `{"profile":{"mode":"root","network":"none"},"tool":"bash","arguments":"{}","workspace":"/w"}`,
		"an unknown key":  `{"profile":{"mode":"read-only","network":"none"},"tool":"bash","arguments":"{}","workspace":"/w","user":0}`,
	} {
		t.Run(name, func(t *testing.T) {
			if o, err := readOrder(bytes.NewReader(frame(body))); err == nil {
				t.Errorf("readOrder() = %+v", o)
			}
		})
	}
	if _, err := readOrder(strings.NewReader("\xff\xff\xff\xff")); err == nil {
		t.Error("an order of 4 GiB is begun")
	}
}

func FuzzReadOrder(f *testing.F) {
	f.Add(frame(`{"profile":{"mode":"workspace-write","network":"none"},"tool":"read","arguments":"{}","workspace":"/w"}`))
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		o, err := readOrder(bytes.NewReader(in))
		if err != nil {
			return
		}
		b, err := encodeOrder(o)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again, err := readOrder(bytes.NewReader(b)); err != nil || again != o {
			t.Fatalf("%+v comes back as %+v, %v", o, again, err)
		}
	})
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
	if slices.ContainsFunc(Environment("/w"), func(v string) bool { return strings.Contains(v, os.Getenv("API_KEY")) }) {
		t.Error("a variable of the supervisor is in it")
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
