// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/runner/conformance"
)

// escape is a public escape from, or bypass of, a sandbox for agents or a mechanism
// that such sandboxes use; and what shows that it does not work here. A row is of the
// suite that `toolbox conformance` runs; a test is a function in this repository.
type escape struct {
	what  string   // reference, and the cause in a few words
	rows  []string // all must be there
	tests []string
	none  string // why it does not apply
}

var escapes = []escape{
	// The boundary was computed from what the model controls.
	{what: "Codex CVE-2025-59532, openai/codex#22207: the working directory of a call became a writable root",
		rows: []string{"outside: append with the working directory there", "outside: append with the working directory at the root"}, tests: []string{"TestTheWorkingDirectoryIsTheCalls"}},
	{what: "MCP filesystem server CVE-2025-53110: a path prefix was compared as a string",
		rows: []string{"write outside by tool", "outside: append through .."}, tests: []string{"TestWrite"}},
	{what: "Cursor DuneSlide: instructions in content led around the wall", tests: []string{"TestPromises"}, rows: []string{"write outside by tool", "edit outside by tool"}},
	{what: "rappdw/sandy#209, laude-institute/headlong#72: mounts derived from links that the agent wrote",
		none: "no mount or argument of a pod is derived from the workspace: nothing trusted reads it"},

	// Checked in trusted code, done elsewhere.
	{what: "multikernel/sandlock#112: resolved by name, then opened following links",
		rows: []string{"write by tool through a link that leads out", "outside: append through a link in the workspace"}},
	{what: "anthony-chaudhary/fak#11693, MCP filesystem server CVE-2025-53109: links inside the allowed tree",
		rows: []string{"write by tool through a link that leads out", "edit by tool through a link that leads out", "search by tool through a link that leads out"}, tests: []string{"TestRead", "TestWrite"}},
	{what: "SchneiderDaniel/cheasee-pi#1612: the target of a new link was checked, not its name", rows: []string{"outside: symlink"}},
	{what: "Hmbown/Codewhale#5569: a hard link to a file outside",
		rows: []string{"link across the border", "replace a second name by tool", "edit a second name by tool"}, tests: []string{"TestWrite"}},
	{what: "everruns/bashkit#1027: links left behind for other readers", none: "nothing outside of the sandbox reads the workspace; what a person does with a copy of it is named in docs/security-model.md"},
	{what: "time between looking where a path leads and writing there", tests: []string{"TestWriteAgainstASwapper"}},

	// A protected path that did not exist yet, or the sandbox's own configuration.
	{what: "Claude Code CVE-2026-25725: a configuration file that was missing at start was created inside and read outside", none: "agent and supervisor read no configuration from the workspace; the agent does not even mount it"},
	{what: "sandbox-runtime: deny paths that do not exist are left out", none: "no part of a writable workspace is promised to be protected, docs/security-model.md says so"},
	{what: "google-gemini/gemini-cli#28215: edits of the agent's own settings were accepted", none: "the agent has no settings that a tool can reach: they are in the desired state"},
	{what: "agent configuration in a repository as policy (Cymulate)", none: "the mode comes from the session and its class alone"},
	{what: "openai/codex#37318: a masked .git broke work, and users turned to full access", none: "nothing of the workspace is masked"},

	// A layer was silently absent.
	{what: "NVIDIA/OpenShell#803: best effort, and the sandbox was never applied",
		rows: []string{"no new privileges, no capabilities, a filter"}, tests: []string{"TestWithoutALayer", "TestNothingConfinesByChance"}},
	{what: "openai/codex#9959: going on without Landlock", tests: []string{"TestABrokenLayerRunsNothing"}},
	{what: "multikernel/sandlock#80: an error or a time-out of the policy let the call pass", tests: []string{"TestWhenTheAgentDies", "TestStartsThatAreRefused"}},
	{what: "go-landlock's best effort; pelagos: success where there is no Landlock", tests: []string{"TestNothingConfinesByChance", "TestABrokenLayerRunsNothing"}},
	{what: "majorcontext/moat#396: Landlock without effect on gVisor", tests: []string{"TestWithoutALayer"}, rows: []string{"create", "chmod"}},
	{what: "rexlunae/RustyClaw#57: an inverted list, and paths beside the sandbox", tests: []string{"TestPromises", "TestACallRunsInEveryMode"}},
	{what: "jikig-ai/soleur#1557: bubblewrap unusable in a container, and a silent fallback", tests: []string{"TestABrokenLayerRunsNothing"}},
	{what: "openai/codex#9292, #18113: the mode was ignored or overridden", tests: []string{"TestPromises", "TestOrdersThatAreRefused", "TestFiltersThatCannotBeMade"}},

	// A second path without the sandbox.
	{what: "anthropics/claude-code#15789: built-in file tools outside of the sandbox",
		rows: []string{"create by tool", "replace by tool", "edit by tool", "write outside by tool", "edit outside by tool", "read a file by tool"}},
	{what: "openai/codex#12800: a path that rebuilt the command without its wrapper", tests: []string{"TestThereIsOneWayToStartAProgram"}},
	{what: "sandbox-runtime#13, trailofbits/claude-code-config#50: retried with the sandbox off", tests: []string{"TestStartsThatAreRefused", "TestCanonicalRefuses"}},
	{what: "NVIDIA/OpenShell#578: with an open network the filter was left out as a whole", tests: []string{"TestWiderModesAllowMore"}, rows: []string{"limit the supervisor", "no new privileges, no capabilities, a filter"}},
	{what: "openai/codex#11316: limits on reading were not made", none: "reading is not limited, docs/security-model.md says so; secrets are in another container", rows: []string{"read the supervisor's environment"}},

	// What the mechanism does not govern.
	{what: "Zouuup/landrun#58, nolabs-ai/nono#914, landlock-lsm/linux#11: metadata",
		rows: []string{"chmod", "chmod of a descriptor for reading", "chown", "utime", "touch by the shell", "set an extended attribute", "set inode flags", "file_setattr"}},
	{what: "landlock-lsm/linux#41: fast open", rows: []string{"inet stream socket"}},
	{what: "landlock-lsm/linux#54, go-landlock#50: multipath TCP", rows: []string{"multipath socket"}},
	{what: "landlock-lsm/linux#10: UDP", rows: []string{"inet datagram socket", "inet6 datagram socket"}},
	{what: "birdcage#32, x0rw/restrict#10: io_uring passes no filter", rows: []string{"io_uring"}},
	{what: "Certora/AutoProver#73: no scopes, so the parent could be stopped",
		rows: []string{"signal the supervisor", "kill the supervisor by descriptor", "kill what watches over the call"}, tests: []string{"TestCallsCannotReachEachOther"}},
	{what: "OpenShell#578, #740: tracing and memory of other processes",
		rows: []string{"trace the supervisor", "read the supervisor's memory", "open the supervisor's memory", "take a descriptor of the supervisor"}, tests: []string{"TestCallsCannotReachEachOther"}},
	{what: "prlimit with a processor limit of nothing on the first process", rows: []string{"limit the supervisor", "limit the supervisor with high bits"}},

	// Sockets, proxies, identity.
	{what: "GreyhavenHQ/greywall#55, sandbox-runtime#234, claude-code#20263: a read-only mount does not stop connect",
		rows: []string{"unix stream socket", "socket pair that can be turned to a path"}, tests: []string{"TestACommandCannotPassForTheSupervisor"}},
	{what: "vybestack/llxprt-code#1954: a socket that asked for no proof", tests: []string{"TestACommandCannotPassForTheSupervisor", "TestASecondSupervisorWaits"}},
	{what: "anthropics/claude-code#87381: a relayed CONNECT was accepted", none: "there is no proxy"},
	{what: "Claude Code: a zero byte in a SOCKS5 host name", none: "there is no proxy"},
	{what: "gke-labs/kube-agents#368: the identity of the pod from the metadata server", rows: []string{"inet stream socket", "inet6 stream socket"}},
	{what: "gke-labs/kube-agents#963: network policies are added up, so that a new one blocks nothing", none: "without a network in the tools nothing rests on a network policy"},

	// What lives longer than it may.
	{what: "multikernel/sandlock#252, #251: survivors by setsid, or after the end", tests: []string{"TestNothingOutlivesACall"}},
	{what: "langfuse#15955, marcusquinn/aidevops#26951: a time-out ended the shell alone", tests: []string{"TestNothingOutlivesACall"}},
	{what: "vm0-ai/vm0#16784: a group was killed after its leader had been reaped", none: "no group is ever killed: a domain is, and then the container", tests: []string{"TestCallsEndAlone"}},
	{what: "Kilo-Org/kilocode#12600, puffo-ai/puffo-agent#83: what ran kept its old policy", tests: []string{"TestAfterNarrowedNotAByteIsWritten", "TestAStartThatRacesWithANarrowing"}},
	{what: "a change that was refused while a terminal was open", tests: []string{"TestNothingOutlivesATerminal", "TestNarrowingDoesNotWaitForOutput", "TestNarrowingDoesNotWaitForAReader"}},

	// Policies over the text of a command.
	{what: "Ona: /proc/self/root, copies, the loader as a program", none: "no program is denied by its name; what any does is confined",
		rows: []string{"append through the root in proc", "outside: append through the root in proc"}},
	{what: "Cursor CVE-2026-22708: built-ins of a shell poisoned the environment", rows: []string{"the environment is the allow-list"}, tests: []string{"TestTheEnvironmentIsTheAllowList"}},
	{what: "Claude Code: more than 50 parts of a command were not looked at", none: "no command is parsed to decide about it"},
	{what: "claude-code#32226: patterns of a deny rule were not expanded", none: "there are no deny rules"},

	{what: "bubblewrap CVE-2017-5226, bubblewrap#150: typing into a shared terminal, compared in 64 bits",
		rows: []string{"type into a terminal", "type into a terminal with high bits", "paste into a terminal", "no terminal of the supervisor",
			"type into a terminal (in a terminal)", "type into a terminal with high bits (in a terminal)", "paste into a terminal (in a terminal)"},
		tests: []string{"TestNothingReachesTheTerminalOfAnotherCall"}},

	{what: "kagent#1690, sandbox-runtime#214, OpenShell#982: privileges so that a sandbox could start",
		rows: []string{"no new privileges, no capabilities, a filter"}, none: "generated pods pass the restricted level of Pod Security: their golden files are judged by its official checks"},
}

// Each known escape is tried, or is said not to apply: and what is named is there.
func TestKnownEscapesAreAccountedFor(t *testing.T) {
	if len(escapes) != 53 {
		t.Errorf("%d escapes are listed, want 53", len(escapes))
	}
	rows := map[string]bool{}
	for _, r := range conformance.Rows() {
		if rows[r.Name] {
			t.Errorf("two rows are called %q", r.Name)
		}
		rows[r.Name] = true
	}
	tests := testNames(t, "../..")
	for _, e := range escapes {
		if len(e.rows) == 0 && len(e.tests) == 0 && e.none == "" {
			t.Errorf("%s: nothing is said", e.what)
		}
		for _, r := range e.rows {
			if !rows[r] {
				t.Errorf("%s: there is no row %q", e.what, r)
			}
		}
		for _, name := range e.tests {
			if !tests[name] {
				t.Errorf("%s: there is no test %s", e.what, name)
			}
		}
	}
}

// testNames are the test functions of runner, tools and toolbox.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"internal/runner", "internal/tool", "cmd/toolbox", "test/conformance"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(p, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
					names[fn.Name.Name] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// Every program is started in one of two places: an init by its supervisor, and a call
// by its init. A third would be a way around the sandbox.
func TestThereIsOneWayToStartAProgram(t *testing.T) {
	want := map[string]string{
		"ForkExec":   "call/pool_linux.go",
		"SYS_EXECVE": "call/fork_linux.go call/plan_linux.go",
	}
	found := map[string][]string{}
	for _, dir := range []string{"internal/runner", "internal/tool", "cmd/toolbox"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") ||
				strings.Contains(p, "runnertest") || strings.Contains(p, "conformance/attempt") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				// A workspace is fetched in a container of its own, which ends before any call.
				if i.Path.Value == `"os/exec"` && !strings.HasSuffix(p, "runner/source/run.go") {
					t.Errorf("%s imports os/exec", p)
				}
			}
			at := filepath.Base(filepath.Dir(p)) + "/" + filepath.Base(p)
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					switch name := s.Sel.Name; name {
					case "ForkExec", "StartProcess", "Exec", "SYS_EXECVE", "SYS_EXECVEAT", "Execve":
						if l := found[name]; len(l) == 0 || l[len(l)-1] != at {
							found[name] = append(l, at)
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range found {
		if want[name] != strings.Join(at, " ") {
			t.Errorf("%s is used in %v, want %q", name, at, want[name])
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %v", found)
	}
}
