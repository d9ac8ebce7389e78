// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// What a class may open or give: its variables, and a root file system that can be written.

// A root file system that the tools' user may write is written under full access alone. In the
// narrower modes Landlock refuses it, in read-only also where the container that runs it should
// have one, against all that a pod of ours says.
func TestAWritableRootFileSystem(t *testing.T) {
	attempts := map[string]string{
		"create":   `{"command":"echo attempted > /new && rm /new"}`,
		"append":   `{"command":"echo attempted >> /there"}`,
		"truncate": `{"command":": > /there"}`,
		"rename":   `{"command":"mv /there /moved && mv /moved /there"}`,
		"mkdir":    `{"command":"mkdir /dir && rmdir /dir"}`,
		"write":    `{"path":"/new","content":"attempted"}`,
		"chmod":    `{"command":"chmod 600 /there"}`,
		"utime":    `{"command":"touch -d 2001-01-01 /there"}`,
	}
	const state = `{"command":"ls -A / && stat -c '%n %a %s %y' / /there && cat /there"}`
	for _, prof := range []policy.Profile{readOnly, workspace, danger} {
		t.Run(prof.Mode.String(), func(t *testing.T) {
			p := runnertest.NewPod(t, toolbox)
			_, _, l := connect(t, p, wire.ContainerFor(prof), prof, runnertest.Options{WritableRoot: true})
			for name, args := range attempts {
				before := call(t, l, prof, "bash", state).Output
				tool := "bash"
				if name == "write" {
					tool = "write"
				}
				r := call(t, l, prof, tool, args)
				// Of what files are besides their content, Landlock knows nothing: in workspace-write it is their owner's.
				metadata := name == "chmod" || name == "utime"
				want := prof == danger || prof == workspace && metadata
				if done := r.Cause == wire.Finished && r.Status == 0; done != want {
					t.Errorf("%s: done %t, want %t: %+v", name, done, want, r)
				}
				if after := call(t, l, prof, "bash", state).Output; !want && after != before {
					t.Errorf("%s left\n%s\nbefore it was\n%s", name, after, before)
				}
			}
		})
	}
}

// Commands and terminals find the class's variables, file tools do not, and nobody else's come
// with them.
func TestVariablesOfTheClass(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	if err := os.Mkdir(p.Path("workspace", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	value := `a=b $HOME $(id) "'\` + "\nsecond line"
	o := runnertest.Options{Variables: []string{"PATH=/workspace/bin:/usr/bin:/bin", "OWN=" + value, "EMPTY="}}
	for _, prof := range []policy.Profile{readOnly, workspace} {
		t.Run(prof.Mode.String(), func(t *testing.T) {
			_, _, l := connect(t, p, wire.ContainerFor(prof), prof, o)
			r := call(t, l, prof, "bash", `{"command":"printf %s \"$OWN\"; echo; env -0 | cut -z -d= -f1 | sort -z | tr '\\0' ' '; echo \"$PATH\""}`)
			want := value + "\nEMPTY GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 HOME LANG OWN PATH PWD SHLVL TERM TMPDIR _ /workspace/bin:/usr/bin:/bin\n"
			if r.Output != want {
				t.Errorf("a command found\n%s\nwant\n%s", r.Output, want)
			}
		})
	}
}

// A supervisor does not start with a variable that would have files of earlier calls run.
func TestAVariableThatIsNotTheClasss(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c := p.Start(t, wire.ToolsRW, runnertest.Options{Variables: []string{"BASH_ENV=/workspace/x"}})
	if err := c.Wait(); err == nil || !strings.Contains(c.Log(), "begin with BASH are not the class's to set") {
		t.Errorf("the supervisor ended with %v and said %s", err, c.Log())
	}
}
