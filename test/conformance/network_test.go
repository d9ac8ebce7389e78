// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

func open(m policy.Mode) policy.Profile {
	return policy.Profile{Mode: m, Network: policy.NetworkOpen}
}

// talk makes and binds sockets. The containers of the tests have no network to speak over.
const talk = `python3 -c '
import socket
for family in socket.AF_INET, socket.AF_INET6:
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        socket.socket(family, kind).bind(("", 0))
print("talked")'`

// With an open network TCP and UDP are added in every mode, and nothing else is.
func TestAnOpenNetworkAddsTCPAndUDP(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	for _, m := range policy.Modes() {
		t.Run(m.String(), func(t *testing.T) {
			_, _, l := connect(t, p, wire.ContainerFor(open(m)), open(m), runnertest.Options{})
			if r := call(t, l, open(m), "bash", bashArgs(talk)); r.Status != 0 || r.Output != "talked\n" {
				t.Errorf("with an open network: %+v", r)
			}
			if r := call(t, l, policy.Profile{Mode: m}, "bash", bashArgs(talk)); r.Status == 0 || !strings.Contains(r.Output, "not permitted") {
				t.Errorf("the same with network none: %+v", r)
			}
			for what, allowed := range map[string]bool{
				"inet-stream": true, "inet-dgram": true, "inet6-stream": true, "inet6-dgram": true, "inet-high-bits": true,
				"inet-raw": false, "inet-mptcp": false, "netlink": false, "packet": false, "vsock": false, "alg": false,
			} {
				r := call(t, l, open(m), "bash", bashArgs("/toolbox/toolbox attempt "+what))
				if allowed != (r.Status == 0) || !allowed && strings.TrimSpace(r.Output) != "denied EPERM" {
					t.Errorf("%s: %+v", what, r)
				}
			}
			findings, err := conformance.Run(networked{caller{l}}, place(p), m)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if inet := strings.HasPrefix(f.Row, "inet"); f.Verdict != conformance.Pass && (!inet || strings.HasPrefix(f.Row, "inet raw socket")) {
					t.Errorf("%s: %s: %s", f.Row, f.Verdict, f.Why)
				}
			}
		})
	}
}

// networked runs the suite's calls with an open network.
type networked struct{ caller }

func (n networked) Call(p policy.Profile, tool, arguments string) (conformance.Result, error) {
	p.Network = policy.NetworkOpen
	return n.caller.Call(p, tool, arguments)
}

// Taking the network away ends who holds a socket, in the container of the readers too.
func TestNarrowingTheNetworkEndsItsSockets(t *testing.T) {
	p := runnertest.NewPod(t, toolbox)
	for _, m := range []policy.Mode{policy.ReadOnly, policy.WorkspaceWrite} {
		t.Run(m.String(), func(t *testing.T) {
			c, _, l := connect(t, p, wire.ContainerFor(open(m)), open(m), runnertest.Options{})
			id := start(t, l, open(m), `exec python3 -c 'import socket, time; s = socket.socket(); s.bind(("", 0)); print("bound", flush=True); time.sleep(1000)'`)
			eventually(t, "the socket is bound", func() bool { return l.Output(id) == "bound\n" })
			if _, err := l.Narrow(policy.Profile{Mode: m}); err != nil {
				t.Fatal(err)
			}
			wantEmpty(t, c)
			if r := wait(t, l, id); r.Cause != wire.Narrowing {
				t.Errorf("the call ended as %+v", r.Exited)
			}
			if r := call(t, l, open(m), "bash", bashArgs("true")); r.Cause != wire.Refused || r.Denial != wire.DeniedProfile {
				t.Errorf("a call with the network that was taken away: %+v", r)
			}
		})
	}
}

func bashArgs(command string) string {
	b, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return string(b)
}
