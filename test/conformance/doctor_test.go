// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"syscall"
	"testing"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What the doctor says of a node is what a supervisor would find there, mode by mode, with what would help.
func TestTheDoctorSaysWhatWouldBeEnforced(t *testing.T) {
	const all, alone = "enforced: what it forbids was tried and refused", "; one call at a time, no terminals"
	const noLandlock = "would not run: it needs Landlock"
	const byMount = "enforced for the workspace by the read-only mount and the system-call filter" + alone
	for name, tc := range map[string]struct {
		mutation  string
		container string
		o         runnertest.Options
		level     wire.Level
		modes     [3]string
		says      string
	}{
		"all of it":               {"", wire.ToolsRW, runnertest.Options{}, wire.LevelFull, [3]string{all, all, all}, "Sessions of every class run here."},
		"all of it, read-only":    {"", wire.ToolsRO, runnertest.Options{}, wire.LevelFull, [3]string{all, all, all}, "read-only mount"},
		"no scopes":               {"abi5", wire.ToolsRW, runnertest.Options{}, wire.LevelFiles, [3]string{all + alone, all + alone, all + alone}, "Full needs 6 (Linux 6.12)"},
		"no Landlock":             {"", wire.ToolsRO, runnertest.Options{NoLandlock: syscall.ENOSYS}, wire.LevelMount, [3]string{byMount, noLandlock, noLandlock}, "as in gVisor"},
		"Landlock switched off":   {"", wire.ToolsRO, runnertest.Options{NoLandlock: syscall.EOPNOTSUPP}, wire.LevelMount, [3]string{byMount, noLandlock, noLandlock}, "kernel parameter lsm"},
		"Landlock refused":        {"", wire.ToolsRO, runnertest.Options{NoLandlock: syscall.EPERM}, wire.LevelMount, [3]string{byMount, noLandlock, noLandlock}, "update the runtime"},
		"no Landlock, no mount":   {"", wire.ToolsRW, runnertest.Options{NoLandlock: syscall.ENOSYS}, wire.LevelMount, [3]string{"was not tried", noLandlock, noLandlock}, "as in gVisor"},
		"no seccomp":              {"", wire.ToolsRO, runnertest.Options{NoSeccomp: true}, wire.LevelNone, [3]string{"would not run", "would not run", "would not run"}, "CONFIG_SECCOMP_FILTER"},
		"a layer does not refuse": {"landlock", wire.ToolsRW, runnertest.Options{}, wire.LevelNone, [3]string{"would not run", "would not run", "would not run"}, "the trial is believed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			if tc.mutation != "" {
				p.Toolbox = mutant(t, tc.mutation)
			}
			tc.o.Command = []string{"/toolbox/toolbox", "doctor"}
			c := p.Start(t, tc.container, tc.o)
			if err := c.Wait(); (err == nil) != (tc.level == wire.LevelFull) {
				t.Errorf("it ended with %v", err)
			}
			said := c.Log()
			want := []string{"enforcement:  " + string(tc.level) + ". ", tc.says}
			for i, mode := range []string{"\nread-only           ", "\nworkspace-write     ", "\ndanger-full-access  "} {
				_, rest, _ := strings.Cut(said, mode)
				line, _, _ := strings.Cut(rest, "\n")
				holds := line == tc.modes[i] || tc.modes[i] == "was not tried" && strings.Contains(line, tc.modes[i])
				if !holds {
					t.Errorf("of %s it says %q, want %q", strings.TrimSpace(mode), line, tc.modes[i])
				}
			}
			for _, w := range want {
				if !strings.Contains(said, w) {
					t.Errorf("%q is not in\n%s", w, said)
				}
			}
			if strings.Contains(said, "as root") || !strings.Contains(said, "No seccomp profile") == (tc.o.NoLandlock == 0 && !tc.o.NoSeccomp) {
				t.Errorf("what it says of this place is wrong:\n%s", said)
			}
		})
	}
}
