// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const module = "github.com/agentsession-dev/operator"

var moduleLine = regexp.MustCompile(`(?m)^module\s+` + regexp.QuoteMeta(module) + `\s*$`)

// findRoot looks for the project's go.mod upwards from dir.
func findRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		if content, err := os.ReadFile(filepath.Join(at, "go.mod")); err == nil && moduleLine.Match(content) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod of %s in %s or above: run inside the repository or name it with --root", module, abs)
		}
	}
}

// programsOf lists the programs that the images need, each once, and refuses when one has no source.
func programsOf(root string, images []image) ([]string, error) {
	var programs []string
	var missing []error
	for _, i := range images {
		for _, p := range i.programs {
			if files, _ := filepath.Glob(filepath.Join(root, "cmd", p, "*.go")); len(files) == 0 {
				missing = append(missing, fmt.Errorf("image %s needs the program cmd/%s, which has no Go files", i.name, p))
			}
			programs = append(programs, p)
		}
	}
	if err := errors.Join(missing...); err != nil {
		return nil, fmt.Errorf("%w\nbuild the others with --only", err)
	}
	slices.Sort(programs)
	return slices.Compact(programs), nil
}

// compile builds static programs into dir. Nothing of the checkout (paths, commit) goes into them, so that an unchanged
// program gives an unchanged image.
func compile(ctx context.Context, root, dir string, programs []string, log io.Writer) error {
	if len(programs) == 0 {
		return nil
	}
	fmt.Fprintf(log, "images: compiling %s\n", strings.Join(programs, ", "))
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compiling %s: %w (the compiler's messages are above)", strings.Join(programs, ", "), err)
	}
	return nil
}
