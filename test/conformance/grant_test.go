// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// granted makes the start of a call that may have a wider mode than the bound.
func granted(t *testing.T, l *runnertest.Link, p policy.Profile, command string) *wire.Start {
	t.Helper()
	st, err := l.Order(p, wire.Workspace, "bash", fmt.Sprintf(`{"command":%q}`, command))
	if err != nil {
		t.Fatal(err)
	}
	st.Granted = true
	return st
}

// A grant is for one call: it runs under its mode and no wider, leaves nothing behind that
// could go on under it, and the bound is what it was.
func TestAGrantLeavesNothing(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	c, _, l := connect(t, p, wire.ToolsRW, readOnly, runnertest.Options{})
	st := granted(t, l, workspace, hydra+"touch ran; touch /extra/ran; exit 4")
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	r := wait(t, l, st.Call)
	size := sizeOf(t, p.Path("workspace/daemon"))
	wantEmpty(t, c) // what waits for calls was ended too
	if r.Cause != wire.Finished || r.Status != 4 || r.Processes == 0 {
		t.Errorf("exited = %+v", r.Exited)
	}
	if _, err := os.Stat(p.Path("workspace/ran")); err != nil {
		t.Errorf("the call did not have what it was granted: %v", err)
	}
	wantAbsent(t, p.Path("extra/ran"))
	again := granted(t, l, workspace, "touch again")
	again.Granted = false
	if err := l.Start(again); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, l, again.Call); r.Cause != wire.Refused || r.Denial != wire.DeniedProfile {
		t.Errorf("the next call, without a grant: %+v", r.Exited)
	}
	wantAbsent(t, p.Path("workspace/again"))
	if now := sizeOf(t, p.Path("workspace/daemon")); now != size {
		t.Errorf("a daemon wrote after the end of its grant: %d bytes, then %d", size, now)
	}
}

// Nothing runs beside a call with a grant: its end ends everything in its container.
func TestAGrantRunsAlone(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	_, _, l := connect(t, p, wire.ToolsRW, workspace, runnertest.Options{})
	stop := func(id string) {
		if err := l.Send(wire.Frame{Stop: &wire.Stop{Call: id}}); err != nil {
			t.Fatal(err)
		}
		wait(t, l, id)
	}
	refused := func(what string, st *wire.Start) {
		t.Helper()
		if err := l.Start(st); err != nil {
			t.Fatal(err)
		}
		if r := wait(t, l, st.Call); r.Cause != wire.Refused || r.Denial != "" {
			t.Errorf("%s: %+v", what, r.Exited)
		}
	}
	ordinary := start(t, l, workspace, "echo up > ordinary; sleep 1000")
	awaitFile(t, p.Path("workspace/ordinary"))
	refused("a granted call beside another", granted(t, l, danger, "true"))
	stop(ordinary)
	st := granted(t, l, danger, "echo up > granted; sleep 1000")
	if err := l.Start(st); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, p.Path("workspace/granted"))
	beside := granted(t, l, workspace, "true")
	beside.Granted = false
	refused("a call beside a granted one", beside)
	stop(st.Call)
}
