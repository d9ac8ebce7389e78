// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

var full = wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7}

func order(change func(*wire.Start)) *wire.Start {
	c, err := tool.Decode("bash", []byte(`{"command":"true"}`))
	if err != nil {
		panic(err)
	}
	st := &wire.Start{Call: "c", Epoch: wire.Epoch{Boot: 2, Counter: 1}, Profile: policy.Profile{Mode: policy.WorkspaceWrite},
		Tool: "bash", Arguments: string(c.Canonical), Digest: c.Digest, Workspace: "/workspace"}
	if change != nil {
		change(st)
	}
	return st
}

// onTerminal makes an order one of the tool terminal.
func onTerminal(arguments string) func(*wire.Start) {
	return func(s *wire.Start) {
		c, err := tool.Decode(tool.TerminalName, []byte(arguments))
		if err != nil {
			panic(err)
		}
		s.Tool, s.Arguments, s.Digest = tool.TerminalName, string(c.Canonical), c.Digest
	}
}

func TestAdmit(t *testing.T) {
	stands := standing{wire.ToolsRW, "/workspace", full, wire.Epoch{Boot: 2, Counter: 1}, policy.Profile{Mode: policy.WorkspaceWrite}, nil}
	weak := stands
	weak.enforcement = wire.Enforcement{Level: wire.LevelFiles, LandlockABI: 5, Detail: "Landlock has ABI 5"}
	weaker := stands
	weaker.enforcement = wire.Enforcement{Level: wire.LevelMount, Detail: "Landlock is not available"}
	ro := stands
	ro.container, ro.bound = wire.ToolsRO, policy.Profile{}
	for name, tc := range map[string]struct {
		stands standing
		change func(*wire.Start)
		cause  wire.Cause // empty: admitted
		denial wire.Denial
	}{
		"what stands":                   {stands, nil, "", ""},
		"an earlier boot":               {stands, func(s *wire.Start) { s.Epoch = wire.Epoch{Boot: 1, Counter: 7} }, wire.Refused, wire.DeniedProfile},
		"an earlier epoch":              {stands, func(s *wire.Start) { s.Epoch.Counter-- }, wire.Refused, wire.DeniedProfile},
		"an epoch that has not begun":   {stands, func(s *wire.Start) { s.Epoch.Counter++ }, wire.Refused, wire.DeniedProfile},
		"wider than the bound":          {stands, func(s *wire.Start) { s.Profile.Mode = policy.DangerFullAccess }, wire.Refused, wire.DeniedProfile},
		"wider than the bound, granted": {stands, func(s *wire.Start) { s.Profile.Mode, s.Granted = policy.DangerFullAccess, true }, "", ""},
		"a network that is granted": {stands, func(s *wire.Start) {
			s.Profile, s.Granted = policy.Profile{Mode: policy.DangerFullAccess, Network: policy.NetworkOpen}, true
		}, wire.Refused, wire.DeniedProfile},
		"a writer beside read-only, granted": {ro, func(s *wire.Start) { s.Granted = true }, wire.Refused, wire.DeniedProfile},
		"granted on a node without Landlock": {weaker, func(s *wire.Start) { s.Granted = true }, wire.SetupFailed, ""},
		"read-only beside writers":           {stands, func(s *wire.Start) { s.Profile.Mode = policy.ReadOnly }, wire.Refused, wire.DeniedProfile},
		"a writer beside read-only":          {ro, nil, wire.Refused, wire.DeniedProfile},
		"an open network":                    {stands, func(s *wire.Start) { s.Profile.Network = policy.NetworkOpen }, wire.Refused, wire.DeniedProfile},
		"a network that does not exist":      {stands, func(s *wire.Start) { s.Profile.Network = 7 }, wire.Refused, wire.DeniedProfile},
		"a mode that does not exist":         {stands, func(s *wire.Start) { s.Profile.Mode = 77 }, wire.Refused, wire.DeniedProfile},
		"a node without scopes":              {weak, nil, "", ""},
		"a terminal":                         {stands, onTerminal(`{"action":"open"}`), "", ""},
		"a terminal without scopes":          {weak, onTerminal(`{"action":"open"}`), wire.Refused, ""},
		"what opens no terminal":             {stands, onTerminal(`{"action":"read"}`), wire.Refused, ""},
		"a node without Landlock":            {weaker, nil, wire.SetupFailed, ""},
		"another workspace":                  {stands, func(s *wire.Start) { s.Workspace = "/" }, wire.Refused, ""},
		"arguments that are not canonical":   {stands, func(s *wire.Start) { s.Arguments = ` {"command":"true"}` }, wire.Refused, ""},
		"arguments that are not understood":  {stands, func(s *wire.Start) { s.Arguments = `{"cmd":"true"}` }, wire.Refused, ""},
		"a digest of something else":         {stands, func(s *wire.Start) { s.Digest = tool.DigestOf("bash", []byte("x")) }, wire.Refused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := tc.stands.admit(order(tc.change))
			switch {
			case tc.cause == "" && r == nil:
			case r == nil:
				t.Errorf("admitted, want %s", tc.cause)
			case r.cause != tc.cause || r.denial != tc.denial || r.detail == "":
				t.Errorf("admit() = %+v, want %s %s", r, tc.cause, tc.denial)
			}
		})
	}
}

func TestEnforcementIsWhatWasFound(t *testing.T) {
	for name, tc := range map[string]struct {
		found  findings
		level  wire.Level
		detail string
	}{
		"everything": {findings{kernel: sandbox.Support{ABI: 7, Seccomp: true}}, wire.LevelFull, ""},
		"no scopes": {findings{kernel: sandbox.Support{ABI: 5, Seccomp: true}}, wire.LevelFiles,
			"Landlock has ABI 5; Full needs 6 (Linux 6.12), Files needs 3 (Linux 6.2)"},
		"no truncation rights": {findings{kernel: sandbox.Support{ABI: 2, Seccomp: true}}, wire.LevelMount,
			"Landlock has ABI 2; Full needs 6 (Linux 6.12), Files needs 3 (Linux 6.2)"},
		"no Landlock in the kernel": {findings{kernel: sandbox.Support{LandlockError: unix.ENOSYS, Seccomp: true}}, wire.LevelMount,
			"Landlock is not available (function not implemented)"},
		"Landlock off at boot": {findings{kernel: sandbox.Support{LandlockError: unix.EOPNOTSUPP, Seccomp: true}}, wire.LevelMount,
			"Landlock is not available (operation not supported)"},
		"Landlock refused by an old runtime": {findings{kernel: sandbox.Support{LandlockError: unix.EPERM, Seccomp: true}}, wire.LevelMount,
			"Landlock is not available (operation not permitted)"},
		"no seccomp": {findings{kernel: sandbox.Support{ABI: 7}}, wire.LevelNone, "seccomp filters are not available"},
		"what should hold does not": {findings{kernel: sandbox.Support{ABI: 7, Seccomp: true},
			failed: map[policy.Mode]error{policy.ReadOnly: errors.New("a write succeeded")}}, wire.LevelNone, "read-only: a write succeeded"},
		"no scopes, and a mode does not hold": {findings{kernel: sandbox.Support{ABI: 5, Seccomp: true},
			failed: map[policy.Mode]error{policy.WorkspaceWrite: errors.New("it wrote")}}, wire.LevelNone,
			"Landlock has ABI 5; Full needs 6 (Linux 6.12), Files needs 3 (Linux 6.2); workspace-write: it wrote"},
	} {
		t.Run(name, func(t *testing.T) {
			e := tc.found.enforcement()
			if e.Level != tc.level || e.Detail != tc.detail {
				t.Errorf("enforcement() = %s %q, want %s %q", e.Level, e.Detail, tc.level, tc.detail)
			}
		})
	}
}
