// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

// places outside the state directory that Kubernetes' programs do not let one
// choose. What the cluster leaves there bears its name or points to its state.
const (
	containerLogs = "/var/log/containers"
	cniResults    = "/var/lib/cni/results"
)

// Clean removes everything that a cluster leaves on the machine when its programs
// have ended, in whatever way: containers and their shims, control groups, mounts,
// links, rules, and what is meant for one run only. Objects, images and logs stay.
func Clean(c config.Config) error {
	return errors.Join(
		killShims(c.Socket()),
		removeCgroup(c),
		unmountUnder(c.StateDir),
		removeRules(c),
		removeBridge(c),
		removeMatching(filepath.Join(cniResults, c.Name+"-*"), nil),
		removeMatching(filepath.Join(containerLogs, "*.log"), pointsUnder(c.Path("pod-logs"))),
		removeShimSockets(c.Socket(), c.Path("containerd", "state")),
		removeRunFiles(c),
	)
}

// removeRunFiles removes what would lie on a memory file system on a machine that
// boots: addresses in use, containerd's and runc's running state, sockets.
func removeRunFiles(c config.Config) error {
	var errs []error
	for _, path := range []string{
		c.Path("containerd", "state"), c.Path("runc"), c.Path("cni", "addresses"),
		c.Socket(), c.Socket() + ".ttrpc", c.Path("pids"),
	} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

func removeMatching(pattern string, pick func(path string) bool) error {
	paths, err := filepath.Glob(pattern)
	for _, p := range paths {
		if pick == nil || pick(p) {
			err = errors.Join(err, os.Remove(p))
		}
	}
	return err
}

func pointsUnder(dir string) func(string) bool {
	return func(path string) bool {
		target, err := os.Readlink(path)
		return err == nil && strings.HasPrefix(target, dir+"/")
	}
}

// RemoveState removes the state directory, if it is a cluster's and nothing is
// mounted in it any more.
func RemoveState(c config.Config) error {
	if _, err := config.Load(c.StateDir); err != nil {
		return err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if points := mountPointsUnder(string(info), c.StateDir); len(points) > 0 {
		return fmt.Errorf("not removing %s: %s is still mounted there", c.StateDir, points[0])
	}
	return os.RemoveAll(c.StateDir)
}
