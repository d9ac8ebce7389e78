// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentsession-dev/operator/internal/wire"
)

// StartInRunc starts a container like Start, by runc and under a seccomp profile: as a
// container runtime on a node does it.
func (p *Pod) StartInRunc(t testing.TB, container, seccompProfile string, o Options) *Container {
	t.Helper()
	profile, err := os.ReadFile(seccompProfile)
	if err != nil {
		t.Fatal(err)
	}
	bundle := t.TempDir()
	if err := errors.Join(p.rootDirectory(bundle), writeJSON(filepath.Join(bundle, "config.json"), p.ociConfig(container, profile, o))); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("conformance-%s-%d", filepath.Base(p.Dir), os.Getpid())
	state := filepath.Join(bundle, "state")
	c := &Container{cmd: exec.Command("runc", "--root", state, "run", "--no-new-keyring", "--bundle", bundle, id), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c, c
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		c.Kill()
		_ = exec.Command("runc", "--root", state, "delete", "--force", id).Run() // it is gone already if it ended in order
		if t.Failed() {
			t.Logf("container %s said:\n%s", container, c.Log())
		}
	})
	return c
}

// rootDirectory is what an image would bring; programs and libraries are the host's.
func (p *Pod) rootDirectory(bundle string) error {
	root := filepath.Join(bundle, "rootfs")
	var err error
	for _, d := range []string{"usr", "etc", "proc", "dev", "sys", "tmp", "workspace", "extra", "ctl", "toolbox", "var", "run"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, statErr := os.Stat("/" + l); statErr == nil {
			err = errors.Join(err, os.Symlink("usr/"+l, filepath.Join(root, l)))
		}
	}
	return errors.Join(err, os.WriteFile(filepath.Join(root, "toolbox", "toolbox"), nil, 0o755),
		os.Mkdir(filepath.Join(root, "toolbox", wire.PrivateDir), 0o700), os.WriteFile(filepath.Join(root, wire.TerminationLog), nil, 0o600))
}

type object = map[string]any

func (p *Pod) ociConfig(container string, seccomp []byte, o Options) object {
	command := o.Command
	if command == nil {
		command = []string{"/toolbox/toolbox", "supervise", "--container", container, "--agent-timeout", o.AgentTimeout.String()}
	}
	return object{
		"ociVersion": "1.0.2",
		"root":       object{"path": "rootfs", "readonly": true},
		"process": object{
			"user": object{"uid": ToolsUser, "gid": ToolsUser}, "cwd": "/", "args": command, "noNewPrivileges": true,
			"env":          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SECRET_OF_THE_SUPERVISOR=must-not-be-inherited"},
			"capabilities": object{},
		},
		"mounts": p.ociMounts(container, o),
		"linux": object{
			"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}, {"type": "cgroup"}},
			"seccomp":    json.RawMessage(seccomp),
			// What containerd hides of /proc and /sys.
			"maskedPaths": []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func (p *Pod) ociMounts(container string, o Options) []object {
	bind := func(from, to string, readOnly bool) object {
		options := []string{"rbind", "rprivate", "rw"}
		if readOnly {
			options[2] = "ro"
		}
		return object{"destination": to, "type": "bind", "source": from, "options": options}
	}
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc", "options": []string{"nosuid", "noexec", "nodev"}},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": []string{"nosuid", "noexec", "nodev"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
		bind("/usr", "/usr", true), bind("/etc", "/etc", true),
		bind(p.Path("workspace"), wire.Workspace, container == wire.ToolsRO && !o.WritableMount),
		bind(p.Path("extra"), Extra, false), bind(p.Ctl(container), wire.CtlDir, true),
		bind(p.Toolbox, "/toolbox/toolbox", true), bind(p.Path("termination-log"), wire.TerminationLog, false),
	}
	if container == wire.ToolsRO {
		return append(mounts, object{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "noexec", "nodev", "ro"}})
	}
	return append(mounts, bind(p.Path("tmp"), "/tmp", false), bind(p.Path("shm"), "/dev/shm", false))
}

func writeJSON(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}
