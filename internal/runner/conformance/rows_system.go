// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// never is refused in every mode.
func never(name string, t Trial, w Want) Row { return Row{Name: name, Try: t, Want: everywhere(w)} }

// scoped is refused in every mode, where there are scopes.
func scoped(name string, t Trial, w Want) Row {
	return Row{Name: name, Try: t, Want: everywhere(w), Layer: OfScopes}
}

// once is a row that would be another one in a terminal.
func once(r Row) Row {
	r.notTwice = true
	return r
}

func socketRows() []Row {
	return []Row{
		never("inet stream socket", operation("inet-stream"), noWay),
		never("inet datagram socket", operation("inet-dgram"), noWay),
		never("inet raw socket", operation("inet-raw"), noWay),
		never("multipath socket", operation("inet-mptcp"), noWay),
		never("inet6 stream socket", operation("inet6-stream"), noWay),
		never("inet6 datagram socket", operation("inet6-dgram"), noWay),
		never("inet socket with high bits", operation("inet-high-bits"), noWay),
		never("netlink socket", operation("netlink"), noWay),
		never("packet socket", operation("packet"), noWay),
		never("vsock socket", operation("vsock"), noWay),
		never("crypto socket", operation("alg"), noWay),
		{Name: "unix stream socket", Try: operation("unix-stream"), Want: [3]Want{noWay, allowed, allowed}},
		{Name: "unix datagram socket", Try: operation("unix-dgram"), Want: [3]Want{noWay, allowed, allowed}},
		{Name: "socket pair", Try: operation("pair-stream"), Want: everywhere(allowed)},
		{Name: "socket pair that can be turned to a path", Try: operation("pair-dgram"), Want: [3]Want{noWay, allowed, allowed}},
	}
}

func processRows() []Row {
	return []Row{
		scoped("signal the supervisor", operation("signal", "1"), noWay),
		scoped("kill the supervisor", operation("kill", "1"), noWay),
		scoped("kill the supervisor by descriptor", operation("pidfd-signal", "1"), noWay),
		scoped("kill what watches over the call", operation("kill-parents"), noWay),
		never("take a descriptor of the supervisor", operation("pidfd-getfd", "1"), noWay),
		never("trace the supervisor", operation("ptrace", "1"), noWay),
		never("read the supervisor's memory", operation("process-vm", "1"), noWay),
		never("open the supervisor's memory", operation("memory", "1"), denied("EACCES", "EPERM")),
		never("read the supervisor's environment", operation("environ", "1"), denied("EACCES", "EPERM")),
		never("list the supervisor's descriptors", operation("descriptors", "1"), denied("EACCES", "EPERM")),
		never("enter the supervisor's root", operation("root", "1"), denied("EACCES", "EPERM")),
		never("offer the supervisor to the out-of-memory killer", operation("oom", "1"), denied("EACCES", "EPERM")),
		never("limit the supervisor", operation("prlimit", "1"), noWay),
		never("limit the supervisor with high bits", operation("prlimit-high-bits", "1"), noWay),
		never("slow the supervisor", operation("nice", "1"), noWay),
		never("slow the whole user", operation("nice-user"), noWay),
		never("bind the supervisor to one processor", operation("affinity", "1"), noWay),
		never("change the supervisor's scheduler", operation("scheduler", "1"), noWay),
		never("change the supervisor's scheduling parameters", operation("parameters", "1"), noWay),
		never("change the supervisor's scheduling attributes", operation("attributes", "1"), noWay),
		never("slow the supervisor's input and output", operation("io-nice", "1"), noWay),
		never("slow the whole user's input and output", operation("io-nice-user"), noWay),
		never("slow oneself", operation("nice-self"), allowed),
	}
}

func kernelRows() []Row {
	return []Row{
		never("unshare a user namespace", operation("unshare-user"), noWay),
		never("start in a user namespace", operation("clone-user"), noWay),
		never("clone3", operation("clone3"), denied("ENOSYS")),
		never("enter a namespace", operation("setns"), noWay),
		never("mount", operation("mount"), noWay),
		never("chroot", operation("chroot"), noWay),
		never("open a tree of mounts", operation("open-tree"), noWay),
		never("io_uring", operation("io-uring"), noWay),
		never("bpf", operation("bpf"), noWay),
		never("userfaultfd", operation("userfaultfd"), noWay),
		never("keyctl", operation("keyctl"), noWay),
		never("perf", operation("perf"), noWay),
		{Name: "System V shared memory", Try: operation("shared-memory"), Want: [3]Want{noWay, noWay, allowed}},
		never("type into a terminal", operation("type-into-terminal"), noWay),
		never("type into a terminal with high bits", operation("type-into-terminal-high-bits"), noWay),
		never("paste into a terminal", operation("paste-into-terminal"), noWay),
		never("foreign system calls", operation("foreign-abi"), killed),
		never("x32 system calls", operation("x32-abi"), killed),
	}
}

// allowList is all that may be in a call's environment; the last three are the shell's.
var allowList = []string{"PATH", "HOME", "LANG", "TERM", "TMPDIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0",
	"PWD", "SHLVL", "_"}

func identityRows() []Row {
	return []Row{
		never("no new privileges, no capabilities, a filter", says("grep -E '^(NoNewPrivs|CapEff|CapPrm|Seccomp):' /proc/self/status", checkStatus), allowed),
		never("the environment is the allow-list", says("env", checkEnvironment), allowed),
		never("nothing is inherited but 0, 1 and 2", says("ls -1 /proc/$$/fd; true", checkDescriptors), allowed),
		once(never("standard input is empty and no terminal", says("cat; test -t 0 || echo none", func(s string) error { return equal("none", s) }), allowed)),
		once(never("no terminal of the supervisor", shell("true < /dev/tty"), denied())),
		never("start in the workspace", says("pwd", func(s string) error {
			if s == "/" || s == "" {
				return fmt.Errorf("the working directory is %q", s)
			}
			return nil
		}), allowed),
	}
}

func checkStatus(s string) error {
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "Seccomp:\t2"} {
		if !slices.Contains(strings.Split(s, "\n"), want) {
			return fmt.Errorf("%q is not in %q", want, s)
		}
	}
	return nil
}

func checkEnvironment(s string) error {
	for line := range strings.SplitSeq(s, "\n") {
		if name, _, ok := strings.Cut(line, "="); !ok || !slices.Contains(allowList, name) {
			return fmt.Errorf("%q is in the environment", line)
		}
	}
	return nil
}

func checkDescriptors(s string) error { return equal("0\n1\n2", s) }

func equal(want, got string) error {
	if want != got {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}
