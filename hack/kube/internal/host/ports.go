// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

// patience is how long an ending apiserver may keep its port.
const patience = 10 * time.Second

// AwaitPorts waits until every port of the wanted parts is free, and says whose
// it is and what to do when one is not.
func AwaitPorts(ctx context.Context, c config.Config, wanted func(part string) bool, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := false
	for {
		taken := takenPorts(c, wanted)
		if len(taken) == 0 {
			return nil
		}
		if !said {
			said = true
			say("waiting up to %s for ports: %s", patience, strings.ReplaceAll(errors.Join(taken...).Error(), "\n", "; "))
		}
		select {
		case <-ctx.Done():
			return errors.Join(taken...)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func takenPorts(c config.Config, wanted func(part string) bool) []error {
	var errs []error
	for _, l := range config.Listeners {
		if !wanted(l.Part) {
			continue
		}
		address := l.Address(c)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			errs = append(errs, fmt.Errorf("port %s, wanted by %s, is taken%s: stop that, or choose another port with --%s",
				address, l.Part, owner(c.Ports[l.Port]), l.Port))
			continue
		}
		listener.Close()
	}
	return errs
}

// owner finds who listens on a TCP port: " by etcd (pid 7)", or nothing when
// that cannot be seen.
func owner(port int) string {
	inodes := make(map[string]bool)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file)
		listeningInodes(string(table), port, inodes)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[target] {
			continue
		}
		pid := strings.Split(link, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf(" by %s (pid %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// listeningInodes collects, in the form of a link in /proc/PID/fd, the sockets
// that listen on a port according to a table like /proc/net/tcp.
func listeningInodes(table string, port int, inodes map[string]bool) {
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == listening {
			inodes["socket:["+fields[9]+"]"] = true
		}
	}
}
