// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const shimProgram = "containerd-shim-runc-v2"

// containerd's shims listen in this directory, whatever containerd's own is.
const shimSockets = "/run/containerd/s"

// shim is a process that belongs to the containerd with a given socket.
type shim struct {
	pid           int
	namespace, id string
}

// killShims ends the shims of the containerd with that socket and removes theirs.
func killShims(socket string) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		shims := findShims(socket)
		if len(shims) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the containerd shim %d does not end, not even after SIGKILL", shims[0].pid)
		}
		for _, s := range shims {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
			_ = os.Remove(s.socket(socket))
		}
	}
}

// removeShimSockets removes the sockets of shims that were killed before: those of
// every container of which containerd's running state knows.
func removeShimSockets(socket, state string) error {
	tasks, err := filepath.Glob(filepath.Join(state, "io.containerd.runtime.v2.task", "*", "*"))
	for _, dir := range tasks {
		s := shim{namespace: filepath.Base(filepath.Dir(dir)), id: filepath.Base(dir)}
		if e := os.Remove(s.socket(socket)); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// socket is how containerd names it: by the digest of where containerd listens,
// namespace and pod.
func (s shim) socket(containerd string) string {
	return filepath.Join(shimSockets, fmt.Sprintf("%x", sha256.Sum256([]byte(filepath.Join(containerd, s.namespace, s.id)))))
}

func findShims(socket string) []shim {
	entries, _ := os.ReadDir("/proc")
	var found []shim
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it has just ended
		}
		if s, ok := parseShim(cmdline, socket); ok {
			s.pid = pid
			found = append(found, s)
		}
	}
	return found
}

// parseShim reads the command line of a process; ok when it is a shim of the
// containerd with that socket. A zombie has no command line.
func parseShim(cmdline []byte, socket string) (s shim, ok bool) {
	args := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	if filepath.Base(string(args[0])) != shimProgram {
		return s, false
	}
	for i, a := range args[:len(args)-1] {
		value := string(args[i+1])
		switch string(a) {
		case "-namespace":
			s.namespace = value
		case "-id":
			s.id = value
		case "-address":
			ok = value == socket
		}
	}
	return s, ok
}
