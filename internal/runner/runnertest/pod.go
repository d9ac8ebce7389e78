// SPDX-License-Identifier: Apache-2.0

package runnertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// Container is a running supervisor.
type Container struct {
	cmd    *exec.Cmd
	done   chan struct{}
	err    error
	mu     sync.Mutex
	stderr bytes.Buffer
}

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

// Write collects what the container says.
func (c *Container) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(b)
}

// Log returns what the container has said.
func (c *Container) Log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// Kill ends the container at once.
func (c *Container) Kill() {
	// Its first process: dropping privileges has cut the tie by which it would die with unshare.
	if pid, err := c.pid(); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	} else {
		_ = c.cmd.Process.Kill()
	}
	<-c.done
}

// Terminate sends SIGTERM to the supervisor and waits for the end of the container.
func (c *Container) Terminate() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	return c.Wait()
}

// Wait waits for the end of the container and returns how the supervisor ended.
func (c *Container) Wait() error {
	<-c.done
	return c.err
}

// pid is the supervisor's process, as the host sees it.
func (c *Container) pid() (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.cmd.Process.Pid, c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// Memory is the supervisor's resident memory in KiB.
func (c *Container) Memory() (int64, error) {
	pid, err := c.pid()
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nVmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("the process has no resident memory")
	}
	return strconv.ParseInt(fields[0], 10, 64)
}

// Processes counts the processes in the container, the supervisor included.
func (c *Container) Processes() (int, error) {
	pids, err := c.Pids()
	return len(pids), err
}

// Waiting counts the processes in the container that wait for a call and watch over none.
func (c *Container) Waiting() (n int, err error) {
	supervisor, err := c.pid()
	if err != nil {
		return 0, err
	}
	pids, err := c.Pids()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended meanwhile
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if string(command) == "toolbox\x00init\x00" && len(children) == 0 &&
			strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", supervisor)) {
			n++
		}
	}
	return n, nil
}

// Pids lists the processes in the container, as the host sees them.
func (c *Container) Pids() ([]int, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range all {
		if ns, err := os.Readlink(path); err == nil && ns == own {
			n, err := strconv.Atoi(strings.Split(path, "/")[2])
			if err != nil {
				return nil, err
			}
			pids = append(pids, n)
		}
	}
	return pids, nil
}

// Freeze stops the supervisor alone, as if it hung; nothing but its end wakes it. It returns
// when every thread stands still: until then one could still take a frame and act on it.
func (c *Container) Freeze() error {
	pid, err := c.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if stopped(pid) {
			return nil
		}
	}
	return fmt.Errorf("the supervisor (PID %d) was not stopped within 10 s", pid)
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, f := range files {
		status, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(status, []byte("\nState:\tT")) {
			return false
		}
	}
	return true
}
