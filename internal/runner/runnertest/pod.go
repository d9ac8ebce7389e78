// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// ToolsUser is the user and group of both tools containers.
const ToolsUser = 65533

// Pod is what two tools containers share: host directories below Dir.
type Pod struct {
	Dir     string
	Toolbox string // the binary
}

// NewPod makes the volumes of a pod. They go with the test.
func NewPod(t testing.TB, toolbox string) *Pod {
	t.Helper()
	p, err := MakePod(toolbox)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Remove() })
	return p
}

// MakePod makes the volumes of a pod for a program that is no test.
func MakePod(toolbox string) (*Pod, error) {
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		return nil, err
	}
	p := &Pod{dir, toolbox}
	for _, d := range []string{"workspace", "tmp", "shm", "extra"} {
		err = errors.Join(err, os.Mkdir(p.Path(d), 0o755), os.Chown(p.Path(d), ToolsUser, ToolsUser))
	}
	for _, d := range []string{"ctl/tools-ro", "ctl/tools-rw", "root"} {
		err = errors.Join(err, os.MkdirAll(p.Path(d), 0o755))
	}
	// As the kubelet makes it: writable for all, also in a read-only container.
	err = errors.Join(err, os.Chmod(dir, 0o755),
		os.WriteFile(p.Path("termination-log"), nil, 0o600), os.Chmod(p.Path("termination-log"), 0o666))
	if err != nil {
		return nil, errors.Join(err, p.Remove())
	}
	return p, nil
}

// Remove removes the volumes.
func (p *Pod) Remove() error { return os.RemoveAll(p.Dir) }

// Path is a path on the host.
func (p *Pod) Path(elem ...string) string { return filepath.Join(append([]string{p.Dir}, elem...)...) }

// Extra is a writable volume that is neither workspace nor temporary.
const Extra = "/extra"

// Host is where a path of the containers is on the host.
func (p *Pod) Host(path string) string {
	return filepath.Join(p.Dir, path) // the volumes have the same names here and there
}

// Ctl is a container's control directory on the host.
func (p *Pod) Ctl(container string) string { return p.Path("ctl", container) }

// Options of a container, beside what the pod says.
type Options struct {
	WritableMount bool     // mount the workspace writable in tools-ro too
	WritableRoot  bool     // the root file system is writable, and its top the tools' user's
	Variables     []string // NAME=VALUE of the class
	AgentTimeout  time.Duration
	Command       []string      // instead of supervise
	NoLandlock    syscall.Errno // what the kernel answers to the calls of Landlock; 0: as it is
	NoSeccomp     bool          // the kernel does not know the call seccomp
}

// Start starts a container. It ends with the test at the latest.
func (p *Pod) Start(t testing.TB, container string, o Options) *Container {
	t.Helper()
	c, err := p.Run(container, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			t.Logf("container %s said:\n%s", container, c.Log())
		}
	})
	return c
}

// Run starts a container that lasts until it is killed.
func (p *Pod) Run(container string, o Options) (*Container, error) {
	if o.AgentTimeout == 0 {
		o.AgentTimeout = 30 * time.Second
	}
	command := o.Command
	if command == nil {
		command = []string{"/toolbox/toolbox", "supervise", "--container", container, "--agent-timeout", o.AgentTimeout.String()}
	}
	for _, v := range o.Variables {
		command = append(command, "--env", v)
	}
	// The shell becomes the first process, and by exec the supervisor.
	args := append([]string{"--pid", "--mount", "--ipc", "--net", "--uts", "--fork", "--propagation", "private",
		"sh", "-eu", "-c", p.script(container, o), "sh"}, command...)
	c := &Container{cmd: exec.Command("/usr/bin/unshare", args...), done: make(chan struct{})}
	c.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SECRET_OF_THE_SUPERVISOR=must-not-be-inherited"}
	c.cmd.Stderr = c
	c.cmd.Stdout = c
	begin := c.cmd.Start
	switch {
	case o.NoLandlock != 0:
		begin = func() error {
			return startWithout(c.cmd, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_RESTRICT_SELF, o.NoLandlock)
		}
	case o.NoSeccomp:
		begin = func() error { return startWithout(c.cmd, unix.SYS_SECCOMP, unix.SYS_SECCOMP, syscall.ENOSYS) }
	}
	if err := begin(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// script builds the container's file system and drops every privilege.
func (p *Pod) script(container string, o Options) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	root := p.Path("root")
	add("mount -t tmpfs -o mode=755 root %s; cd %s", root, root)
	add("mkdir usr etc proc dev dev/pts dev/shm tmp workspace extra ctl toolbox old var run")
	add("for l in bin sbin lib lib64; do [ -e /$l ] && ln -s usr/$l $l; done")
	add("mount --rbind -o ro /usr usr; mount -o remount,bind,ro usr; mount --bind /etc etc; mount -o remount,bind,ro etc")
	add("mount -t proc proc proc")
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		add("touch dev/%s; mount --bind /dev/%s dev/%s", n, n, n)
	}
	add("mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts; ln -s pts/ptmx dev/ptmx")
	add("ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr")
	add("mount --bind %s workspace; mount --bind %s extra", p.Path("workspace"), p.Path("extra"))
	add("mount --bind %s ctl; mount -o remount,bind,ro ctl", p.Ctl(container))
	add("touch toolbox/toolbox; mount --bind %s toolbox/toolbox; mount -o remount,bind,ro toolbox/toolbox", p.Toolbox)
	add("mkdir -m 700 toolbox/private; touch toolbox/private/termination-log; mount --bind %s toolbox/private/termination-log", p.Path("termination-log"))
	if container == wire.ToolsRO {
		add("mount -t tmpfs -o ro shm dev/shm")
		if !o.WritableMount {
			add("mount -o remount,bind,ro workspace")
		}
	} else {
		add("mount --bind %s tmp; mount --bind %s dev/shm", p.Path("tmp"), p.Path("shm"))
	}
	add("pivot_root . old; cd /; umount -l old; rmdir old")
	if o.WritableRoot {
		add("echo there > /there; chown %[1]d:%[1]d / /there", ToolsUser)
	} else {
		add("mount -o remount,ro /")
	}
	id := strconv.Itoa(ToolsUser)
	add(`exec setpriv --reuid %s --regid %s --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"`, id, id)
	return b.String()
}
