// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Rows returns every promise.
func Rows() []Row {
	rows := slices.Concat(readingRows(), writingRows(), metadataRows(), fileToolRows(), outsideRows(), deviceRows(), socketRows(), processRows(), kernelRows(), identityRows())
	return slices.Concat(rows, inTerminals(rows), terminalRows())
}

func contains(want string) func(string) error {
	return func(s string) error {
		if !strings.Contains(s, want) {
			return fmt.Errorf("%q is not in %q", want, s)
		}
		return nil
	}
}

var (
	noWrite = denied("EROFS", "EACCES", "EPERM") // by the mount, by Landlock or by seccomp
	noMeta  = denied("EROFS")
	noWay   = denied("EPERM")
)

// writing is a modification of the workspace.
func writing(name string, t Trial) Row {
	return Row{Name: name, Try: t, Want: [3]Want{noWrite, allowed, allowed}, Changes: true, Layer: OfWorkspace}
}

// meta is a modification that opens nothing for writing.
func meta(name string, t Trial, changes bool) Row {
	return Row{Name: name, Try: t, Want: [3]Want{noMeta, allowed, allowed}, Changes: changes, Layer: OfWorkspace}
}

func readingRows() []Row {
	return []Row{
		{Name: "read a file", Try: operation("read", "{dir}/file"), Want: everywhere(allowed)},
		{Name: "list a directory", Try: shell("ls -l {dir}"), Want: everywhere(allowed)},
		{Name: "run a program", Try: shell("/usr/bin/env true"), Want: everywhere(allowed)},
		{Name: "read a file by tool", Try: Trial{Tool: "read", Path: "{dir}/file"}, Want: everywhere(allowed)},
		{Name: "find by tool", Try: Trial{Tool: "glob", Path: "{dir}", WantsText: contains("sub/file")}, Want: everywhere(allowed)},
		{Name: "search by tool", Try: Trial{Tool: "grep", Path: "{dir}", WantsText: contains("sub/file:1:original")}, Want: everywhere(allowed)},
		{Name: "read outside by tool", Try: Trial{Tool: "read", Path: "/etc/passwd"}, Want: everywhere(allowed)},
	}
}

func writingRows() []Row {
	return []Row{
		writing("create", operation("create", "{dir}/new")),
		writing("create by the shell", shell("echo attempted > {dir}/new")),
		writing("append", operation("append", "{dir}/file")),
		writing("append by the shell", shell("echo attempted >> {dir}/file")),
		writing("overwrite", operation("overwrite", "{dir}/file")),
		writing("append through a link", operation("append", "{dir}/link")),
		writing("append through a second name", operation("append", "{dir}/second-name")),
		writing("append through the root in proc", operation("append", "/proc/self/root{dir}/file")),
		writing("append through ..", operation("append", "{dir}/sub/../file")),
		writing("reopen a descriptor for writing", operation("reopen", "{dir}/file")),
		writing("truncate", operation("truncate", "{dir}/file")),
		writing("truncate by opening for reading", operation("open-truncating", "{dir}/file")),
		writing("unlink", operation("unlink", "{dir}/file")),
		writing("remove a directory", operation("rmdir", "{dir}/empty")),
		writing("remove a tree by the shell", shell("rm -rf {dir}/sub")),
		writing("rename", operation("rename", "{dir}/file", "{dir}/renamed")),
		writing("rename between directories", operation("rename", "{dir}/file", "{dir}/sub/renamed")),
		writing("exchange", operation("exchange", "{dir}/file", "{dir}/other")),
		writing("link", operation("link", "{dir}/file", "{dir}/third-name")),
		writing("symlink", operation("symlink", "file", "{dir}/new-link")),
		writing("make a directory", operation("mkdir", "{dir}/new")),
		writing("make a fifo", operation("mkfifo", "{dir}/new")),
		writing("bind a socket", operation("bind", "{dir}/new")),
		{Name: "nameless file", Try: operation("tmpfile", "{dir}"), Want: [3]Want{noWrite, allowed, allowed}, Layer: OfWorkspace},
	}
}

func metadataRows() []Row {
	return []Row{
		meta("chmod", operation("chmod", "{dir}/file"), true),
		meta("chmod by the shell", shell("chmod 777 {dir}/file"), true),
		meta("chmod setuid", operation("chmod-setuid", "{dir}/file"), true),
		meta("chmod of a descriptor for reading", operation("fchmod", "{dir}/file"), true),
		meta("fchmodat2", operation("fchmodat2", "{dir}/file"), true),
		meta("chown", operation("chown", "{dir}/file"), false),
		meta("chown of a descriptor for reading", operation("fchown", "{dir}/file"), false),
		meta("utime", operation("utime", "{dir}/file"), true),
		meta("touch by the shell", shell("touch -d 2001-01-01 {dir}/file"), true),
		meta("utime of a descriptor for reading", operation("futimens", "{dir}/file"), true),
		meta("set an extended attribute", operation("setxattr", "{dir}/file"), true),
		meta("set one on a descriptor for reading", operation("fsetxattr", "{dir}/file"), true),
		meta("remove an extended attribute", operation("removexattr", "{dir}/file"), true),
		meta("set inode flags", operation("setflags", "{dir}/file"), true),
		meta("set extended inode flags", operation("fssetxattr", "{dir}/file"), true),
		// Recent calls, which a container runtime's own filter may refuse first.
		{Name: "setxattrat", Try: operation("setxattrat", "{dir}/file"), Want: [3]Want{denied(), notHere, notHere}, Layer: OfWorkspace},
		{Name: "file_setattr", Try: operation("file_setattr", "{dir}/file"), Want: [3]Want{denied(), notHere, notHere}, Layer: OfWorkspace},
	}
}

func fileToolRows() []Row {
	return []Row{
		{Name: "create by tool", Try: Trial{Tool: "write", Path: "{dir}/deep/new"}, Want: byTool, Changes: true, Layer: OfWorkspace},
		{Name: "replace by tool", Try: Trial{Tool: "write", Path: "{dir}/file"}, Want: byTool, Changes: true, Layer: OfWorkspace},
		{Name: "replace a second name by tool", Try: Trial{Tool: "write", Path: "{dir}/second-name"}, Want: byTool, Changes: true, Layer: OfWorkspace},
		{Name: "edit by tool", Try: Trial{Tool: "edit", Path: "{dir}/file"}, Want: byTool, Changes: true, Layer: OfWorkspace},
		{Name: "edit a second name by tool", Try: Trial{Tool: "edit", Path: "{dir}/second-name"}, Want: byTool, Changes: true, Layer: OfWorkspace},
		{Name: "edit by tool through a link that leads out", Try: Trial{Tool: "edit", Path: "{dir}/out/file"},
			Want: everywhere(Want{Denial: "write"}), Outside: true},
		{Name: "edit outside by tool", Try: Trial{Tool: "edit", Path: "{outside}/file"},
			Want: [3]Want{{Denial: "write"}, {Denial: "write"}, allowed}, Outside: true},
		{Name: "find by tool through a link that leads out", Try: Trial{Tool: "glob", Path: "{dir}/out"},
			Want: everywhere(Want{Denial: "read"}), Outside: true},
		{Name: "search by tool through a link that leads out", Try: Trial{Tool: "grep", Path: "{dir}/out"},
			Want: everywhere(Want{Denial: "read"}), Outside: true},
		{Name: "write by tool through a link that leads out", Try: Trial{Tool: "write", Path: "{dir}/out/file"},
			Want: everywhere(Want{Denial: "write"}), Outside: true},
		{Name: "write outside by tool", Try: Trial{Tool: "write", Path: "{outside}/file"},
			Want: [3]Want{{Denial: "write"}, {Denial: "write"}, allowed}, Outside: true},
		{Name: "write a system file by tool", Try: Trial{Tool: "write", Path: "/usr/attempted"}, Want: everywhere(Want{Denial: "write"})},
	}
}

var byTool = [3]Want{{Denial: "write"}, allowed, allowed}
