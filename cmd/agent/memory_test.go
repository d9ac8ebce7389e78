// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
)

// What an agent may have resident, in MiB.
const (
	idleMiB = 20
	busyMiB = 64
	// quickEvents is how long the log of the busy session gets where MEMORY_EVENTS says no other.
	quickEvents = 500
)

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

func (p *pod) residentMiB() float64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	m := resident.FindSubmatch(status)
	if m == nil {
		p.t.Fatalf("no VmRSS in\n%s", status)
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kib / 1024
}

// The agent's process is small: idle in a session whose policy is applied, and in one whose log has many
// events (make bench: 10,000) and whose transcript was sent with every request, nothing of it shortened; and so is the next boot.
func TestMemory(t *testing.T) {
	want := uint64(quickEvents)
	if s := os.Getenv("MEMORY_EVENTS"); s != "" {
		var err error
		if want, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	p := newPod(t)
	p.switchTo(policy.WorkspaceWrite)
	idle := p.residentMiB()
	t.Logf("agent_idle_mib %.1f", idle)
	if idle > idleMiB {
		t.Errorf("idle it has %.1f MiB resident, want at most %d", idle, idleMiB)
	}
	most, events := 0.0, uint64(0)
	for events < want {
		p.say("work")
		most = max(most, p.residentMiB())
		events = p.put().Log.Seq
		p.desired.Messages = p.desired.Messages[len(p.desired.Messages):] // the controller does not repeat what is answered
	}
	t.Logf("agent_%d_events_mib %.1f", want, most)
	if most > busyMiB {
		t.Errorf("in a session of %d events it has %.1f MiB resident, want at most %d", events, most, busyMiB)
	}
	p.restartAgent()
	p.switchTo(policy.ReadOnly)
	p.say("work")
	again := p.residentMiB()
	t.Logf("after a restart %.1f", again)
	if again > busyMiB {
		t.Errorf("after a restart it has %.1f MiB resident, want at most %d", again, busyMiB)
	}
}
