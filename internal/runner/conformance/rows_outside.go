// SPDX-License-Identifier: Apache-2.0

package conformance

import "github.com/agentsession-dev/operator/internal/wire"

// out is a modification of something that permissions let the user modify, beyond
// workspace and temporary directories.
func out(name string, t Trial) Row {
	return Row{Name: "outside: " + name, Try: t, Want: [3]Want{noWrite, denied("EACCES", "EXDEV"), allowed}, Changes: true, Outside: true}
}

func outsideRows() []Row {
	return []Row{
		out("create", operation("create", "{outside}/new")),
		out("append", operation("append", "{outside}/file")),
		out("append through a link in the workspace", operation("append", "{dir}/out/file")),
		out("append through ..", operation("append", "{dir}/../../{outside}/file")),
		out("append through the root in proc", operation("append", "/proc/self/root{outside}/file")),
		out("append through the directory in proc", shell("cd / && echo attempted >> /proc/self/cwd{outside}/file")),
		out("append with the working directory there", Trial{Tool: "bash", Command: "echo attempted >> file", Path: "{outside}"}),
		out("append with the working directory at the root", Trial{Tool: "bash", Command: "echo attempted >> .{outside}/file", Path: "/"}),
		out("truncate", operation("truncate", "{outside}/file")),
		out("truncate by opening for reading", operation("open-truncating", "{outside}/file")),
		out("reopen a descriptor for writing", operation("reopen", "{outside}/file")),
		out("unlink", operation("unlink", "{outside}/file")),
		out("rename", operation("rename", "{outside}/file", "{outside}/renamed")),
		out("exchange", operation("exchange", "{outside}/file", "{outside}/other")),
		out("link", operation("link", "{outside}/file", "{outside}/third-name")),
		out("symlink", operation("symlink", "file", "{outside}/new-link")),
		out("make a directory", operation("mkdir", "{outside}/new")),
		out("remove a directory", operation("rmdir", "{outside}/empty")),
		out("make a fifo", operation("mkfifo", "{outside}/new")),
		{Name: "outside: chmod", Try: operation("chmod", "{outside}/file"), Want: [3]Want{noMeta, notHere, allowed}, Changes: true, Outside: true},
		{Name: "outside: utime", Try: operation("utime", "{outside}/file"), Want: [3]Want{noMeta, notHere, allowed}, Changes: true, Outside: true},
		{Name: "outside: set an extended attribute", Try: operation("setxattr", "{outside}/file"), Want: [3]Want{noMeta, notHere, allowed}, Changes: true, Outside: true},

		{Name: "link across the border", Try: operation("link", "{outside}/file", "{dir}/taken"), Want: everywhere(denied()), Outside: true},
		{Name: "rename out of the workspace", Try: operation("rename", "{dir}/file", "{outside}/given"), Want: everywhere(denied()), Outside: true},
		{Name: "rename into the workspace", Try: operation("rename", "{outside}/file", "{dir}/taken"), Want: everywhere(denied()), Outside: true},

		{Name: "create in /", Try: operation("create", "/attempted"), Want: everywhere(denied())},
		{Name: "create in /etc", Try: operation("create", "/etc/attempted"), Want: everywhere(denied())},
		{Name: "create in /usr", Try: operation("create", "/usr/attempted"), Want: everywhere(denied())},
		{Name: "create beside the toolbox", Try: operation("create", "/toolbox/attempted"), Want: everywhere(denied())},
		{Name: "create in the control directory", Try: operation("create", "/ctl/attempted"), Want: everywhere(denied())},
		{Name: "remove the workspace", Try: operation("rename", "/workspace", "/workspace-away"), Want: everywhere(denied())},

		{Name: "create in /tmp", Try: shell("echo attempted > /tmp/attempted-$$ && rm /tmp/attempted-$$"), Want: [3]Want{denied(), allowed, allowed}},
		{Name: "create in /dev/shm", Try: shell("echo attempted > /dev/shm/attempted-$$ && rm /dev/shm/attempted-$$"), Want: [3]Want{denied(), allowed, allowed}},
		{Name: "use the home directory", Try: shell("mkdir $HOME/attempted && rmdir $HOME/attempted"), Want: [3]Want{denied(), allowed, allowed}},
	}
}

func deviceRows() []Row {
	return []Row{
		{Name: "write /dev/null", Try: operation("append", "/dev/null"), Want: everywhere(allowed)},
		{Name: "write /dev/zero", Try: operation("append", "/dev/zero"), Want: everywhere(allowed)},
		{Name: "read /dev/urandom", Try: operation("read", "/dev/urandom"), Want: everywhere(allowed)},
		// The kubelet mounts it writable for all, and a file's time is nothing that Landlock
		// governs: so it is in a directory that the tools' user cannot enter.
		{Name: "write the termination message", Try: shell("echo attempted >> /dev/termination-log"), Want: everywhere(denied())},
		{Name: "touch the termination message", Try: shell("touch /dev/termination-log"), Want: everywhere(denied())},
		{Name: "write the termination message where it is", Try: shell("echo attempted >> " + wire.TerminationLog), Want: everywhere(denied())},
		{Name: "touch the termination message where it is", Try: shell("touch " + wire.TerminationLog), Want: everywhere(denied())},
		{Name: "write one's own files in proc", Try: operation("append", "/proc/self/comm"), Want: [3]Want{denied("EACCES"), denied("EACCES"), allowed}},
		{Name: "write what the kernel exports", Try: operation("append", "/proc/sys/kernel/core_pattern"), Want: everywhere(denied())},
		{Name: "write to the output", Try: shell("echo attempted > /dev/stdout"), Want: everywhere(allowed)},
	}
}
