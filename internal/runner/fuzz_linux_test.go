// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Whatever comes on the control connection, and whatever descriptors come beside it: the reader
// ends with an error or gives whole frames, and every descriptor is closed again.
func FuzzControl(f *testing.F) {
	for _, frame := range []wire.Frame{
		{Start: order(nil)}, {Stop: &wire.Stop{Call: "c"}}, {Narrow: &wire.Narrow{Epoch: wire.Epoch{Boot: 3}, Grace: 5}}, {Widen: &wire.Widen{}},
	} {
		b, err := wire.EncodeFrame(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(1))
		f.Add(append(b, b...), uint8(0))
		f.Add(b[:len(b)-1], uint8(maxPassed+1))
	}
	f.Fuzz(func(t *testing.T, in []byte, descriptors uint8) {
		in, descriptors = in[:min(len(in), 64<<10)], descriptors%(2*maxPassed)
		before := openDescriptors(t)
		near, far := pairOf(t)
		sent := make(chan error, 1)
		go func() { sent <- sendAll(far, in, int(descriptors)) }()
		p := &passed{conn: near}
		r := bufio.NewReader(p)
		for {
			frame, err := wire.ReadFrame(r)
			if err != nil {
				break
			}
			if _, err := frame.Member(); err != nil {
				t.Fatalf("a frame came through that says nothing: %v", err)
			}
			if fd, ok := p.next(); ok {
				_ = unix.Close(fd)
			}
		}
		_ = near.Close()
		<-sent // an error means that the reader had enough
		p.drop()
		if after := openDescriptors(t); after != before {
			t.Fatalf("%d descriptors are open, %d were before", after, before)
		}
	})
}

func pairOf(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]*net.UnixConn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		conns[i] = c.(*net.UnixConn)
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return conns[0], conns[1]
}

// sendAll sends bytes with descriptors beside the first one, and ends.
func sendAll(c *net.UnixConn, b []byte, descriptors int) error {
	defer c.Close()
	if len(b) == 0 {
		return nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	var rights []byte
	if descriptors > 0 {
		fds := make([]int, descriptors)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(b[:1], rights, nil); err != nil {
		return err
	}
	_, err = c.Write(b[1:])
	return err
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Whatever an order says: what is admitted belongs to the epoch that stands, runs in this
// container within the bound, and with the arguments that its digest was made of.
func FuzzAdmit(f *testing.F) {
	for _, change := range []func(*wire.Start){
		nil, func(s *wire.Start) { s.Epoch.Counter++ }, func(s *wire.Start) { s.Profile.Network = policy.NetworkOpen },
		func(s *wire.Start) { s.Profile.Mode, s.Granted = policy.DangerFullAccess, true }, func(s *wire.Start) { s.Arguments = `{"command":"false"}` },
	} {
		b, err := json.Marshal(order(change))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(1), uint8(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, mode, network uint8) {
		var st wire.Start
		if json.Unmarshal(in, &st) != nil {
			return
		}
		bound := policy.Profile{Mode: policy.Mode(mode % 3), Network: policy.Network(network % 2)}
		for _, container := range []string{wire.ToolsRO, wire.ToolsRW} {
			stands := standing{container, "/workspace", full, wire.Epoch{Boot: 2, Counter: 1}, bound, nil}
			c, refusal := stands.admit(&st)
			if refusal != nil {
				continue
			}
			if st.Epoch != stands.epoch || wire.ContainerFor(st.Profile) != container || c.Digest != st.Digest ||
				!st.Profile.Within(bound) && !st.Granted || st.Profile.Network > bound.Network {
				t.Fatalf("%+v is admitted in %s under %+v", st, container, bound)
			}
			if again, err := tool.Canonical(st.Tool, []byte(st.Arguments)); err != nil || again.Digest != st.Digest {
				t.Fatalf("what is admitted is not canonical: %v", err)
			}
		}
	})
}
