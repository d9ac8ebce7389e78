// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroupRoots are the directories of the cluster's control group: one with
// version 2, one in each hierarchy with version 1 and with both.
func cgroupRoots(c config.Config) []string {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return []string{filepath.Join(cgroupMount, c.Name)}
	}
	entries, _ := os.ReadDir(cgroupMount)
	var roots []string
	for _, e := range entries {
		if e.IsDir() { // the links beside them are other names of the same
			roots = append(roots, filepath.Join(cgroupMount, e.Name(), c.Name))
		}
	}
	return roots
}

// EnsureCgroup makes the control group that holds all pods; the kubelet wants to
// find it.
func EnsureCgroup(c config.Config) error {
	for _, root := range cgroupRoots(c) {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return fmt.Errorf("making the control group %s: %w (the kubelet needs writable control groups)", root, err)
		}
		if err := prepareCgroup(root); err != nil {
			return fmt.Errorf("preparing the control group %s: %w", root, err)
		}
	}
	return nil
}

// prepareCgroup lets children have what the parent has: with version 1 a new
// cpuset is empty, with version 2 the controllers are handed down one by one.
func prepareCgroup(root string) error {
	parent := filepath.Dir(root)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil || len(strings.TrimSpace(string(value))) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, name), value, 0o644); err != nil {
			return err
		}
	}
	for _, dir := range []string{parent, root} {
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			continue // version 1
		}
		for _, name := range strings.Fields(string(controllers)) {
			// One that cannot be handed down is missed by the kubelet, if it needs it.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
		}
	}
	return nil
}

// removeCgroup kills what is left of the pods and removes their control groups.
// It repeats both: what is killed may just have forked, and a group can be
// removed only after its last process was reaped.
func removeCgroup(c config.Config) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		err = nil
		for _, root := range cgroupRoots(c) {
			killAll(root)
			err = errors.Join(err, removeTree(root))
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("removing the control groups of the pods: %w", err)
}

func killAll(root string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		procs, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return nil
	})
}

func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
