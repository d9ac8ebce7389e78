// SPDX-License-Identifier: Apache-2.0

// Package host is the machine under the cluster: what it offers, what the
// cluster leaves on it, and how that is removed again. It touches only what bears
// the cluster's marks: its directory, socket, link alias, control group, rules.
package host

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
)

var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// Facts looks at the machine. dir is where the state will be.
func Facts(binDir, dir string) (parts.Facts, error) {
	f := parts.Facts{BinDir: binDir, CNIDirs: cniDirs, Snapshotter: "overlayfs"}
	var err error
	if f.Runc, err = exec.LookPath("runc"); err != nil {
		return f, fmt.Errorf("looking for runc: %w", err)
	}
	caps, err := effectiveCapabilities()
	if err != nil {
		return f, err
	}
	f.RestrictOOM = caps&(1<<unix.CAP_SYS_RESOURCE) == 0
	if !overlayWorks(dir) {
		f.Snapshotter = "native"
	}
	f.Nameservers, f.Search = resolver("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
	return f, nil
}

func effectiveCapabilities() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no CapEff")
}

// overlayWorks tries: an overlay cannot have another overlay as its upper layer,
// which is what a directory inside most containers is.
func overlayWorks(dir string) bool {
	probe, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(probe)
	sub := func(name string) string { return filepath.Join(probe, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(sub(name), 0o700) != nil {
			return false
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", sub("lower"), sub("upper"), sub("work"))
	if unix.Mount("overlay", sub("merged"), "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(sub("merged"), unix.MNT_DETACH) == nil
}

// resolver reads the nameservers that pods can use as well. A stub on loopback
// cannot be reached from a pod: then the file behind it is asked.
func resolver(files ...string) (nameservers, search []string) {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if nameservers, search = parseResolver(string(data)); len(nameservers) > 0 {
			return nameservers, search
		}
	}
	return nil, nil
}

func parseResolver(content string) (nameservers, search []string) {
	lines := bufio.NewScanner(strings.NewReader(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if ip, err := netip.ParseAddr(fields[1]); err == nil && !ip.IsLoopback() && ip.Zone() == "" {
				nameservers = append(nameservers, ip.String())
			}
		case "search":
			search = fields[1:]
		}
	}
	return nameservers, search
}

// EnsurePath adds the system directories that a root shell may lack.
func EnsurePath() error {
	return os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
}

// IsRoot reports whether we may make links, mounts and control groups.
func IsRoot() bool { return syscall.Geteuid() == 0 }
