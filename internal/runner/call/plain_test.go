// SPDX-License-Identifier: Apache-2.0

package call_test

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

const plainSocket = "plain.sock"

func init() { call.ServePlain = servePlain }

// servePlain is the first process of a container that confines nothing: for each byte that it
// reads it forks and executes, and answers how long that took.
func servePlain() error {
	c, err := net.Dial("unix", filepath.Join(wire.CtlDir, plainSocket))
	if err != nil {
		return err
	}
	for b := make([]byte, 8); ; {
		if _, err := c.Read(b[:1]); err != nil {
			return err
		}
		start := time.Now()
		if err := plain("/tmp"); err != nil {
			return err
		}
		binary.BigEndian.PutUint64(b, uint64(time.Since(start)))
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

func plain(dir string) error {
	c := exec.Command("/bin/bash", "-c", "exec /bin/true")
	c.Env, c.Dir = call.Environment(dir), dir
	return c.Run()
}

// plainInContainer runs the command by servePlain, in a container like that of the tools.
func plainInContainer(b *testing.B) func() (time.Duration, error) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := runnertest.NewPod(b, self)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.Ctl(wire.ToolsRW), plainSocket), Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(l.Addr().String(), 0o666); err != nil {
		b.Fatal(err)
	}
	p.Start(b, wire.ToolsRW, runnertest.Options{Command: []string{"/toolbox/toolbox", "plain"}})
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return func() (time.Duration, error) {
		answer := make([]byte, 8)
		err := c.SetDeadline(time.Now().Add(time.Minute))
		if err == nil {
			_, err = c.Write(answer[:1])
		}
		if err == nil {
			_, err = c.Read(answer)
		}
		return time.Duration(binary.BigEndian.Uint64(answer)), err
	}
}
