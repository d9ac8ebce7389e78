// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// Every attempt in the script prints "name: DONE" or "name: refused (why)".
var attempts = regexp.MustCompile(`(?m)^(.+): (DONE|refused)`)

func TestReadOnlyHoldsAgainstBashAndWrite(t *testing.T) {
	s := newSession(t, "workspace-write")
	s.ask("seed the workspace")
	state := "cd /workspace && ls -laR --time-style=full-iso && cat seed"
	before := must(t)(s.sh(state))
	s.switchTo("read-only")
	s.ask("attempt modifications")
	results := s.results()
	tried := attempts.FindAllStringSubmatch(results[1], -1)
	if len(tried) != 14 {
		t.Errorf("%d attempts were made, want 14: %s", len(tried), results[1])
	}
	for _, a := range tried {
		if a[2] != "refused" {
			t.Errorf("in read-only %q was done", a[1])
		}
	}
	if !strings.Contains(strings.ToLower(results[2]), "denied") {
		t.Errorf("the result of write is %s", results[2])
	}
	if after := must(t)(s.sh(state)); after != before {
		t.Errorf("the workspace changed:\n%s\nbefore it was:\n%s", after, before)
	}
}

func TestWorkspaceWriteStaysInside(t *testing.T) {
	s := newSession(t, "workspace-write")
	s.ask("seed the workspace")
	s.ask("attempt outside")
	results := s.results()
	tried := attempts.FindAllStringSubmatch(results[1], -1)
	if len(tried) != 19 {
		t.Errorf("%d attempts were made, want 19: %s", len(tried), results[1])
	}
	for _, a := range tried {
		want := "refused"
		if a[1] == "in the workspace" || a[1] == "in tmp" {
			want = "DONE"
		}
		if a[2] != want {
			t.Errorf("in workspace-write %q was %s, want %s", a[1], a[2], want)
		}
	}
	if !strings.Contains(strings.ToLower(results[2]), "denied") {
		t.Errorf("the result of write is %s", results[2])
	}
}

func TestToolsContainersHoldNoSecret(t *testing.T) {
	for _, mode := range []string{"read-only", "danger-full-access"} {
		t.Run(mode, func(t *testing.T) {
			s := newSession(t, mode)
			s.ask("look for secrets")
			result := s.results()[0]
			if strings.Contains(result, "READABLE") {
				t.Errorf("a secret place can be read: %s", result)
			}
			for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Seccomp:\t2"} {
				if !strings.Contains(result, want) {
					t.Errorf("%s is not in %s", want, result)
				}
			}
			const variables = "GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 HOME LANG PATH PWD SHLVL TERM TMPDIR _ \n"
			if !strings.HasPrefix(result, variables) {
				t.Errorf("the environment is not %q: %s", variables, result)
			}
		})
	}
}

func TestNothingWritesAfterANarrowingIsConfirmed(t *testing.T) {
	const repeats = 100
	s := newSession(t, "workspace-write")
	for i := range repeats {
		m := s.send("write without end")
		eventually(t, "the writer runs", func() bool {
			out, err := s.sh("stat -c %s /workspace/ticks")
			return err == nil && strings.TrimSpace(out) != "0"
		})
		s.switchTo("read-only")
		// Twice with four ticks of the writer in between, in one exec, so that the first is as early as may be.
		sizes := strings.Fields(must(t)(s.sh("stat -c %s /workspace/ticks; sleep 0.1; stat -c %s /workspace/ticks")))
		if len(sizes) != 2 || sizes[0] != sizes[1] {
			t.Fatalf("repeat %d: the file grew from %v after the narrowing was confirmed", i, sizes)
		}
		s.answered(m)
		s.switchTo("workspace-write")
		if i < repeats-1 {
			must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "exec", s.pod(), "-c", "tools-rw", "--", "truncate", "-s", "0", "/workspace/ticks"))
		}
	}
	narrowed := 0
	for _, r := range s.results() {
		if strings.Contains(r, "the sandbox was narrowed") {
			narrowed++
		}
	}
	if narrowed != repeats {
		t.Errorf("%d calls were told that the sandbox was narrowed, want %d", narrowed, repeats)
	}
	s.verifyLog()
}
