// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Run builds what is missing. Each program appears whole or not at all, and of
// two builds at once the second waits, and then finds everything there.
func (p Plan) Run(ctx context.Context, out *Progress) error {
	if len(p.missing()) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.BinDir(), 0o755); err != nil {
		return fmt.Errorf("making the cache: %w: name another directory with --cache or AGENTSESSION_CACHE", err)
	}
	unlock, err := p.lock(out)
	if err != nil {
		return err
	}
	defer unlock()
	p.sweep()
	goTool, err := findGo()
	if err != nil {
		return err
	}
	missing := p.missing()
	out.Line("building %d of %d programs of the cluster into %s (once: minutes on a small machine)", len(missing), len(Programs), p.BinDir())
	for i, prog := range missing {
		step := out.Step(i+1, len(missing), strings.TrimSpace(prog.Name+" "+p.version(prog.Of)))
		err := p.build(ctx, goTool, prog, step)
		step.End(err == nil)
		if err != nil {
			return fmt.Errorf("building %s: %w", prog.Name, err)
		}
	}
	return nil
}

// Done reports whether nothing is left to build.
func (p Plan) Done() bool { return len(p.missing()) == 0 }

func (p Plan) lock(out *Progress) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(p.Root, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		out.Line("another build is running: waiting for it")
		if err := syscall.Flock(fd, syscall.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("waiting for another build: %w", err)
		}
	}
	return func() { f.Close() }, nil
}

const asideSuffix = ".building"

// sweep removes what a killed build left; the lock is held.
func (p Plan) sweep() {
	left, _ := filepath.Glob(filepath.Join(p.BinDir(), "*"+asideSuffix))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

func (p Plan) build(ctx context.Context, goTool string, prog Program, step *Step) error {
	final := filepath.Join(p.BinDir(), prog.Name)
	aside := final + asideSuffix
	if err := p.compile(ctx, goTool, prog, aside, step); err != nil {
		return err
	}
	if err := settle(aside, final); err != nil {
		return err
	}
	for _, alias := range prog.Aliases {
		if err := os.Symlink(prog.Name, filepath.Join(p.BinDir(), alias)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func (p Plan) compile(ctx context.Context, goTool string, prog Program, output string, step *Step) error {
	cmd := exec.CommandContext(ctx, goTool, "build", "-v", "-mod=readonly", "-buildvcs=false", "-tags", tags,
		"-ldflags", p.linkerFlags(), "-o", output, "./cmd/"+prog.Name)
	cmd.Dir = p.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOFLAGS=", "PWD="+p.Source)
	// A group of its own: the compilers end with the tool that started them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var complaints []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		if !step.Saw(line) {
			complaints = append(complaints, line)
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		complaints = complaints[max(0, len(complaints)-20):]
		return fmt.Errorf("%w\n    %s", err, strings.Join(complaints, "\n    "))
	}
	return nil
}

// settle gives a finished file its name after its content has reached the disk,
// so that a crash cannot leave an empty program that looks built.
func settle(aside, final string) error {
	f, err := os.Open(aside)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(aside, final)
}

// findGo looks further than PATH, which sudo and root shells cut short.
func findGo() (string, error) {
	if path, err := exec.LookPath("go"); err == nil {
		return path, nil
	}
	for _, root := range []string{runtime.GOROOT(), "/usr/local/go", "/usr/lib/go"} {
		path := filepath.Join(root, "bin", "go")
		if _, err := os.Stat(path); root != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("the go command is not in PATH: add its directory, or build first as the user who has it (with --cache for both)")
}
