// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// needed is what the distribution provides, and the Debian package it is in.
var needed = []struct {
	pkg   string
	there func() bool
}{
	{"runc", inPath("runc")},
	{"iptables", inPath("iptables-restore")},
	{"conntrack", inPath("conntrack")},
	{"containernetworking-plugins", plugins("ptp", "host-local", "portmap")},
}

func inPath(program string) func() bool {
	return func() bool { _, err := exec.LookPath(program); return err == nil }
}

func plugins(names ...string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(cniDirs, func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				return err == nil
			})
		})
	}
}

// MissingPackages names the Debian packages that are yet to be installed.
func MissingPackages() []string {
	var missing []string
	for _, n := range needed {
		if !n.there() {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

// InstallPackages installs what is missing with apt-get, without questions.
func InstallPackages(ctx context.Context, say func(format string, args ...any)) error {
	missing := MissingPackages()
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine lacks what Debian has in the packages %s, and has no apt-get to install them: install the equivalents", list)
	}
	say("installing the Debian packages %s", list)
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		// A failing update is fatal only if the install then fails too.
		if out, err := cmd.CombinedOutput(); err != nil && args[0] == "install" {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, lastLines(string(out), 15))
		}
	}
	if still := MissingPackages(); len(still) > 0 {
		return errors.New("still missing after installing: " + strings.Join(still, " "))
	}
	return nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}
