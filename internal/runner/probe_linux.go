// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Probe finds out what can be enforced here: what the kernel says, and what the path
// of a call shows in every mode when it tries what must fail.
func Probe(r call.Reaper, workspace string) wire.Enforcement {
	f := findings{kernel: sandbox.Kernel(), failed: map[policy.Mode]error{}, readOnlyMount: isReadOnly(workspace)}
	inits := call.NewPool(r)
	defer inits.Empty()
	for _, m := range f.tried() {
		for _, n := range []policy.Network{policy.NetworkNone, policy.NetworkOpen} {
			if err := tryPath(inits, policy.Profile{Mode: m, Network: n}, workspace); err != nil {
				f.failed[m] = err
			}
		}
	}
	return f.enforcement()
}

// findings are what a probe saw.
type findings struct {
	kernel        sandbox.Support
	failed        map[policy.Mode]error // modes whose sandbox could not be put up
	readOnlyMount bool
}

func (f findings) enforcement() wire.Enforcement {
	e := wire.Enforcement{Level: f.level(), LandlockABI: f.kernel.ABI}
	if f.kernel.ABI > 0 {
		e.Layers = append(e.Layers, "landlock")
	}
	if f.kernel.ABI >= sandbox.MinimumABI {
		e.Layers = append(e.Layers, "scopes")
	}
	if f.kernel.Seccomp {
		e.Layers = append(e.Layers, LayerSeccomp)
	}
	if f.readOnlyMount {
		e.Layers = append(e.Layers, LayerMount)
	}
	e.Detail = f.detail()
	return e
}

// tried are the modes whose sandbox has to hold for the level that the kernel promises.
func (f findings) tried() []policy.Mode {
	switch {
	case !f.kernel.Seccomp:
		return nil
	case f.kernel.ABI >= sandbox.FilesABI:
		return policy.Modes()
	case f.readOnlyMount:
		return []policy.Mode{policy.ReadOnly}
	}
	return nil // nothing runs in this container
}

func (f findings) level() wire.Level {
	switch {
	case !f.kernel.Seccomp:
		return wire.LevelNone
	case len(f.failed) > 0:
		return wire.LevelNone // the kernel says yes, the trial says no: believe the trial
	case f.kernel.ABI < sandbox.FilesABI:
		return wire.LevelMount
	case f.kernel.ABI < sandbox.MinimumABI:
		return wire.LevelFiles
	}
	return wire.LevelFull
}

// inContainer is what a report is worth in a container: on the mount alone, read-only
// needs the mount.
func inContainer(e wire.Enforcement, container string) wire.Enforcement {
	if e.Level == wire.LevelMount && container == wire.ToolsRO && !slices.Contains(e.Layers, LayerMount) {
		e.Level = wire.LevelNone
		e.Detail = "the workspace is not mounted read-only; " + e.Detail
	}
	return e
}

// Layers that a report names.
const (
	LayerSeccomp = "seccomp"
	LayerMount   = "read-only mount"
)

// detail says why the level is not Full.
func (f findings) detail() string {
	var why []string
	switch abi := f.kernel.ABI; {
	case abi == 0:
		why = append(why, fmt.Sprintf("Landlock is not available (%v)", f.kernel.LandlockError))
	case abi < sandbox.MinimumABI:
		why = append(why, fmt.Sprintf("Landlock has ABI %d; Full needs %d (Linux 6.12), Files needs %d (Linux 6.2)",
			abi, sandbox.MinimumABI, sandbox.FilesABI))
	}
	if !f.kernel.Seccomp {
		why = append(why, "seccomp filters are not available")
	}
	for _, m := range policy.Modes() {
		if err := f.failed[m]; err != nil {
			why = append(why, fmt.Sprintf("%s: %v", m, err))
		}
	}
	return strings.Join(why, "; ")
}

// tryPath runs nothing through the path of a call.
func tryPath(inits *call.Pool, p policy.Profile, workspace string) error {
	c, err := inits.Launch(call.Order{Profile: p, Tool: call.Selftest, Workspace: workspace})
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Begin()
	end, waitErr := c.Wait()
	switch {
	case err != nil:
		return errors.Join(err, waitErr)
	case waitErr != nil:
		return waitErr
	case end.Status != 0 || end.Signal != "":
		return fmt.Errorf("an empty program ended with status %d %s", end.Status, end.Signal)
	}
	return nil
}

func isReadOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}
